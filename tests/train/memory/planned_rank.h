// A trainer that only plans, and random microbatches that packing could produce for it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/dist/planning.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/stages.h"
#include "slimexx/train/trainer.h"

namespace slimexx::train {

// The trainer of a rank, without memory. Must be used in a planning scope.
class PlannedRank {
 public:
  PlannedRank(const model::ModelSpec& spec, const dist::GridShape& shape, int rank,
              tensor::Device device, const TrainOptions& options, model::PipelineSplit split = {})
      : grid_(shape, rank, device) {
    split.num_ranks = shape.sizes().pp;
    const auto stage = static_cast<size_t>(shape.position(rank).pp);
    const auto chunks = model::list_stages(spec, split)[stage];
    std::vector<model::ParameterInfo> infos;
    for (const auto& info : model::list_parameters(spec, chunks))
      infos.push_back(model::narrow(info, shape.sizes(), shape.position(rank)));
    store_ = std::make_unique<model::ParameterStore>(infos, device, true);
    std::vector<const model::Decoder*> of_chunks;
    for (const model::StageRange& chunk : chunks) {
      chunks_.push_back(std::make_unique<model::Decoder>(spec, device, spec.max_positions, chunk,
                                                         shape.sizes(), shape.sizes().tp));
      of_chunks.push_back(chunks_.back().get());
    }
    decoders_ = std::make_unique<StageDecoders>(of_chunks);
    trainer_ = std::make_unique<Trainer>(*decoders_, *store_, grid_.host(), grid_.groups(), options,
                                         OptimizerOptions{}, 1.0f, device, 1);
  }
  Trainer& trainer() { return *trainer_; }
  const Trainer& trainer() const { return *trainer_; }
  const StageDecoders& decoders() const { return *decoders_; }
  const model::ParameterStore& store() const { return *store_; }

 private:
  dist::PlanningGrid grid_;
  std::unique_ptr<model::ParameterStore> store_;
  std::vector<std::unique_ptr<model::Decoder>> chunks_;
  std::unique_ptr<StageDecoders> decoders_;
  std::unique_ptr<Trainer> trainer_;
};

// Limits for packed microbatches: at most num_tokens tokens, unless a single sample has more.
struct PackedLimits {
  int64_t num_tokens = 0, longest = 0, num_samples = 0;
  int64_t logit_rows = 0;  // rows that the head keeps; drawn microbatches are close to it
};

inline std::vector<int64_t> draw_lengths(PhiloxStream& random, const PackedLimits& limits) {
  const auto draw = [&](int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(last - first + 1)));
  };
  if (random.next_below(8) == 0) return {limits.longest};
  std::vector<int64_t> lengths;
  const uint64_t kind = random.next_below(6);
  const int64_t small = draw(2, 9);
  int64_t left = limits.num_tokens;
  const int64_t most_samples = std::min(limits.num_samples, std::max<int64_t>(left / 2, 1));
  const int64_t count = random.next_below(3) == 0 ? most_samples : draw(1, most_samples);
  for (int64_t i = 0; i < limits.num_samples && left >= 2; ++i) {
    const int64_t most = std::min(left, limits.longest);
    int64_t length = draw(2, most);
    if (kind == 1) length = std::clamp<int64_t>(limits.num_tokens / count, 2, most);
    if (kind == 2) length = i < count / 2 ? most : std::min<int64_t>(2 + draw(0, 3), most);
    if (kind == 3) length = most;
    if (kind == 5) length = std::min(small, most);
    if (kind == 4)
      length = i == 0 ? most
                      : std::clamp<int64_t>((limits.num_tokens - limits.longest) / count, 2, most);
    lengths.push_back(length);
    left -= length;
  }
  if (random.next_below(2) == 0) std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

inline std::vector<Sample> draw_microbatch(PhiloxStream& random, const PackedLimits& limits) {
  const std::vector<int64_t> lengths = draw_lengths(random, limits);
  int64_t most_rows = 0;
  for (const int64_t length : lengths) most_rows += length - 1;
  const auto draw_rows = [&](int64_t most) {
    int64_t near = limits.logit_rows;
    if (random.next_below(2) == 0) near += static_cast<int64_t>(random.next_below(9)) - 4;
    const int64_t any = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(most + 1)));
    const uint64_t kind = random.next_below(6);
    return std::clamp<int64_t>(kind < 2 ? most : kind < 5 ? near : any, 0, most);
  };
  int64_t rows = draw_rows(most_rows - std::ssize(lengths));  // in addition to one row per sample
  int64_t labels = draw_rows(rows + std::ssize(lengths));
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    const int64_t more = std::min(rows, length - 2);
    rows -= more;
    const auto responses = static_cast<size_t>(1 + more);
    const auto trained = static_cast<size_t>(std::min(labels, 1 + more));
    labels -= static_cast<int64_t>(trained);
    Sample s{.tokens = std::vector<int32_t>(static_cast<size_t>(length)),
             .response_length = 1 + more,
             .loss_mask = std::vector<uint8_t>(responses, 0),
             .advantages = std::vector<float>(responses),
             .old_log_probs = std::vector<float>(responses),
             .ref_log_probs = std::vector<float>(responses),
             .rollout_log_probs = std::vector<float>(responses)};
    std::fill_n(s.loss_mask.begin(), trained, uint8_t{1});
    samples.push_back(std::move(s));
  }
  return samples;
}

}  // namespace slimexx::train
