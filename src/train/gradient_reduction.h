// Sums a step's gradients: of the embedding at both ends of the pipeline, of heads that several tp
// ranks hold, and over replicas. Sums over replicas begin while the last backward runs. The class
// owns the optimizer, whose ranks hold the reduced parts.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/train/gradient_parts.h"
#include "slimexx/train/optimizer.h"
#include "train/copied_gradients.h"
#include "train/trained_stages.h"

namespace slimexx::train {

class GradientReduction {
 public:
  // `min_part_elements` as in list_gradient_parts. Collective.
  GradientReduction(const TrainedStages& stages, const OptimizerOptions& options,
                    int64_t min_part_elements);
  // Begins a step. Pass the hooks to the step's last backward only; they refer to `ctx`.
  StageHooks start_step(const ops::Context& ctx);
  // Call after the last backward: starts all sums that are left. Collective.
  void finish_step(const ops::Context& ctx);
  int64_t measure_update() const;  // scratch of the sums and of an update, in bytes
  // Copies the first stage's embedding to the last stage's copy. Collective.
  void publish_embedding(const ops::Context& ctx);
  ShardedAdamW& optimizer() { return optimizer_; }

 private:
  void finish_stage(const ops::Context& ctx, int64_t stage);
  void start_final_parts(const ops::Context& ctx);
  void sum_tied_gradients(const ops::Context& ctx) const;

  const TrainedStages& stages_;
  // The first and the last stage, if the last one holds a copy of the embedding; otherwise null.
  std::unique_ptr<dist::Collective> embedding_ranks_;
  tensor::Tensor embedding_, embedding_gradient_;  // of embedding_ranks_
  CopiedGradients copied_gradients_;
  std::vector<GradientPart> parts_;
  size_t num_started_parts_ = 0;  // in this step, as last_stage_done_
  int64_t last_stage_done_ = -1;
  ShardedAdamW optimizer_;
};

}  // namespace slimexx::train
