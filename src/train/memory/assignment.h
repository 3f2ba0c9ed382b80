// Which rank runs which microbatch of a step or a scoring pass. In planned memory, microbatches
// that do not fit are split.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "slimexx/train/activation_memory.h"
#include "slimexx/train/packing.h"
#include "train/trained_stages.h"

namespace slimexx::train {

struct Assignment {
  Bins microbatches;             // sample indices; microbatches added by even_out are empty
  int64_t num_packed = 0;        // microbatches with samples
  int64_t room_tokens = 0;       // capacity of those
  Bins mine;                     // this rank's microbatches; equally many on every rank
  std::vector<int64_t> numbers;  // indices of `mine` among all microbatches
  std::vector<int> owner;        // rank of each microbatch
};

class Assigner {
 public:
  Assigner(const TrainedStages& stages, const ActivationMemory& memory)
      : stages_(stages), memory_(memory) {}
  // Packs samples and assigns the microbatches. In planned memory, microbatches that `reserve`
  // finds too large are split by samples until all fit; a single sample that does not fit throws
  // AgreedError. Collective in planned memory.
  SlotPlan assign_fitting(const StageDecoders& decoders, std::span<const Sample> samples,
                          const std::function<SlotPlan(const Assignment&)>& reserve,
                          Assignment& assignment);

 private:
  Assignment assign(const StageDecoders& decoders, std::span<const Sample> samples,
                    Bins microbatches) const;
  bool split_too_large(std::span<const Sample> samples, const Assignment& assignment,
                       const SlotPlan& plan, Bins& microbatches);

  const TrainedStages& stages_;
  const ActivationMemory& memory_;
  bool has_split_ = false;  // a microbatch did not fit
};

}  // namespace slimexx::train
