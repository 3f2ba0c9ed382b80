#include "train/gradient_reduction.h"

#include <utility>

#include "slimexx/dist/planning.h"
#include "slimexx/model/stages.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::train {
namespace {

// Group of the first and the last stage, if the last one holds a copy of the embedding. Collective
// over the pipeline.
std::unique_ptr<dist::Collective> make_embedding_group(const model::ModelSpec& spec,
                                                       const dist::Groups& groups) {
  const int rank = groups.pp.rank(), last = groups.pp.size() - 1;
  const bool has_copy =
      model::holds_embedding_copy(spec, {.has_embedding = last == 0, .has_head = true});
  if (!has_copy) return nullptr;
  const bool is_member = rank == 0 || rank == last;
  if (tensor::is_planning())
    return is_member ? dist::make_planning_group(rank == 0 ? 0 : 1, 2, groups.pp.device())
                     : nullptr;
  auto group = groups.pp.split(is_member ? 0 : 1, rank);
  return is_member ? std::move(group) : nullptr;
}

}  // namespace

GradientReduction::GradientReduction(const TrainedStages& stages, const OptimizerOptions& options,
                                     int64_t min_part_elements)
    : stages_(stages),
      embedding_ranks_(make_embedding_group(stages.spec, stages.groups)),
      copied_gradients_(stages.chunks, stages.groups.tp),
      parts_(list_gradient_parts(stages.policy, stages.spec, min_part_elements)),
      optimizer_(stages.policy, stages.host, stages.groups, options, stages.device, parts_) {
  if (embedding_ranks_ == nullptr) return;
  const StageChunk& chunk =
      stages.groups.pp.rank() == 0 ? stages.chunks.front() : stages.chunks.back();
  embedding_ = chunk.weights.embedding;
  embedding_gradient_ = chunk.gradients.embedding;
}

StageHooks GradientReduction::start_step(const ops::Context& ctx) {
  num_started_parts_ = 0;
  last_stage_done_ = -1;
  // Gradients of copied heads are summed after the last backward, before the sums over replicas.
  if (!optimizer_.sums_beside() || !copied_gradients_.empty()) return {};
  return {.stage_done = [this, &ctx](int64_t stage) { finish_stage(ctx, stage); },
          .attention_next = [this, &ctx] { start_final_parts(ctx); }};
}

// Starts the sums of all final parts, in the order of the parts. Called before the next layer's
// attention, because the sums slow down attention least.
void GradientReduction::start_final_parts(const ops::Context& ctx) {
  for (; num_started_parts_ < parts_.size(); ++num_started_parts_) {
    if (parts_[num_started_parts_].last_stage > last_stage_done_) return;
    optimizer_.start_gradient_part(ctx, static_cast<int64_t>(num_started_parts_));
  }
}

void GradientReduction::finish_stage(const ops::Context& ctx, int64_t stage) {
  const model::ModelSpec& spec = stages_.spec;
  // The gradient of a tied embedding is final only after the gradient of the other end of the
  // pipeline is added.
  if (embedding_ranks_ != nullptr && spec.tied_embeddings && stage > spec.num_layers()) return;
  last_stage_done_ = stage;
  // No attention follows the backward of the first layer.
  const bool has_attention_next = stage < spec.num_layers();
  if (!has_attention_next) start_final_parts(ctx);
}

// The embedding is one parameter, although with tied embeddings the stages at both ends have
// gradients of it.
void GradientReduction::sum_tied_gradients(const ops::Context& ctx) const {
  if (embedding_ranks_ == nullptr || !stages_.spec.tied_embeddings) return;
  if (!embedding_gradient_.defined()) return;  // frozen
  embedding_ranks_->all_reduce_sum(ctx.stream, ctx.arena, embedding_gradient_,
                                   dist::SumOrder::kAny);
}

void GradientReduction::finish_step(const ops::Context& ctx) {
  sum_tied_gradients(ctx);
  copied_gradients_.sum(ctx);
  optimizer_.start_remaining_parts(ctx);
}

int64_t GradientReduction::measure_update() const {
  tensor::Arena plan = tensor::Arena::for_planning(stages_.device, "activations of microbatches");
  const ops::Context ctx = ops::planning_context(plan, stages_.groups);
  sum_tied_gradients(ctx);
  optimizer_.plan_step(ctx);
  copied_gradients_.sum(ctx);
  return plan.high_water_bytes();
}

void GradientReduction::publish_embedding(const ops::Context& ctx) {
  if (embedding_ranks_ != nullptr) embedding_ranks_->broadcast(ctx.stream, embedding_, 0);
}

}  // namespace slimexx::train
