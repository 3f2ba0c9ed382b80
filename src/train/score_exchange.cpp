#include "train/score_exchange.h"

#include "slimexx/dist/host.h"
#include "train/passes/scoring.h"

namespace slimexx::train {
namespace {

std::vector<int> list_reporters(dist::Collective& host, const dist::Groups& groups) {
  int64_t own = is_reporter(groups) ? groups.dp.rank() : -1;
  std::vector<int64_t> all(static_cast<size_t>(host.size()));
  host.all_gather({}, tensor::Tensor(all.data(), tensor::DType::kI64, {}, {std::ssize(all)}),
                  tensor::Tensor(&own, tensor::DType::kI64, {}, {1}));
  std::vector<int> reporters(static_cast<size_t>(groups.dp.size()));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] >= 0) reporters[static_cast<size_t>(all[rank])] = static_cast<int>(rank);
  return reporters;
}

}  // namespace

std::vector<TokenScores> ScoreExchange::gather(std::string mine, const Assignment& assignment,
                                               std::span<const Sample> samples) {
  if (!is_reporter(stages_.groups)) mine.clear();
  if (reporters_.empty()) reporters_ = list_reporters(stages_.host, stages_.groups);
  const std::vector<std::string> all = dist::all_gather_bytes(stages_.host, mine);
  std::vector<TokenScores> scores(samples.size());
  std::vector<size_t> read(all.size(), 0);
  for (size_t m = 0; m < assignment.microbatches.size(); ++m) {
    const auto rank = static_cast<size_t>(reporters_[static_cast<size_t>(assignment.owner[m])]);
    read_scores(all[rank], read[rank], samples, assignment.microbatches[m], scores);
  }
  return scores;
}

}  // namespace slimexx::train
