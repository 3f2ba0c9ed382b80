#include "rollout/draft_gate.h"

#include <algorithm>

#include "slimexx/model/describe.h"

namespace slimexx::rollout {
namespace {

// Assumed, not measured.
// Before anything was checked: so many drafts, of which this share of each was right if those
// before it were.
constexpr double kFirstOffered = 16, kFirstShare = 0.7;
// A step with drafts is launched when the one before is known: the device waits for the host.
constexpr double kWait = 1.05;
// Older drafts count half as much after so many more.
constexpr double kMemory = 4096;

double count_elements(const model::ParameterCounts& counts, const char* part) {
  const auto found = std::ranges::find(counts.parts, part, &model::PartCount::name);
  return found == counts.parts.end() ? 0 : static_cast<double>(found->elements);
}

}  // namespace

double DecodeCost::of_rows(double rows, double context) const {
  return dense + experts * model::share_of_experts(expert_rate, rows * rows_of_row) +
         rows * (row + context * cached_token);
}

DecodeCost decode_cost(const model::ModelSpec& spec, const dist::Groups& groups,
                       int64_t element_bytes, double cached_token) {
  const model::ParameterCounts counts = model::count_parameters(spec);
  const double experts = count_elements(counts, "experts");
  const double unread = count_elements(counts, "multi-token prediction") +
                        (spec.tied_embeddings ? 0 : count_elements(counts, "embedding"));
  const double tp = groups.tp.size(), of_experts = groups.ep.size() * groups.etp.size();
  const auto width = static_cast<double>(element_bytes);
  return {.dense = (static_cast<double>(counts.total) - experts - unread) / tp * width,
          .experts = experts / of_experts * width,
          .expert_rate = model::expert_rate(spec),
          .rows_of_row = std::max(1.0, of_experts / tp),
          .row = 3 * 4 * static_cast<double>(spec.vocab_size),
          .cached_token = cached_token};
}

DraftGate::DraftGate(int64_t most, const DecodeCost& cost) : cost_(cost) {
  double right = kFirstOffered;
  for (int64_t i = 0; i < most; ++i)
    counts_.push_back({.offered = kFirstOffered, .right = right *= kFirstShare});
}

int64_t DraftGate::choose(int64_t running, double context, int64_t most) {
  most = std::clamp<int64_t>(most, 0, std::ssize(counts_));
  ++calls_;
  const auto rows = static_cast<double>(running);
  double tokens = 1, best = 1 / cost_.of_rows(rows, context);
  last_ = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const Count& count = counts_[static_cast<size_t>(n - 1)];
    tokens += count.right / count.offered;
    const double rate =
        tokens / (kWait * cost_.of_rows(rows * static_cast<double>(n + 1), context));
    if (rate > best) best = rate, last_ = n;
  }
  return calls_ % kProbeCalls == 0 ? most : last_;
}

void DraftGate::record(int64_t offered, int64_t accepted) {
  for (int64_t i = 0; i < std::min<int64_t>(offered, std::ssize(counts_)); ++i) {
    Count& count = counts_[static_cast<size_t>(i)];
    ++count.offered;
    if (i < accepted) ++count.right;
    if (count.offered >= kMemory) count.offered /= 2, count.right /= 2;
  }
}

}  // namespace slimexx::rollout
