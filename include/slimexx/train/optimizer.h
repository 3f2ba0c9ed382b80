// AdamW over a ParameterStore, with its state sharded over data-parallel ranks (ZeRO-1). The flat
// parameters of every trainable group are cut into parts; each rank reduces, updates and keeps one
// slice of each part (gradient_parts.h), then all ranks gather the new weights. Over NCCL a part's
// reduce-scatter may overlap the backward pass.
//
// With options.optimizer_cpu_offload the state is in host memory (host_state.h), with the same
// bits.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/dist/groups.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/optimizer.h"
#include "slimexx/train/gradient_parts.h"
#include "slimexx/train/host_state.h"
#include "slimexx/train/options.h"

namespace slimexx::train {

// This rank's shard of a parameter group: weights and optimizer state of a trainable group, or the
// share of a frozen group that this rank writes to files. The master weights are f32, the moments
// have options.state_dtype.
struct OwnedGroup {
  const model::ParameterGroup* parameters = nullptr;
  dist::Collective* ranks = nullptr;  // ranks that share the group: see ReduceGroup
  std::vector<dist::Range> slices;    // of all ranks: part p of rank r is [p * ranks + r]
  std::vector<OwnedPiece> pieces;     // of this rank
  // [elements of pieces], on the device or in host memory; undefined if frozen
  tensor::Tensor master, exp_avg, exp_avg_sq;
  bool is_trained() const { return parameters->trainable; }
};

class ShardedAdamW {
 public:
  // Master weights start as the store's; frozen parameters keep their bytes. All ranks must
  // construct an object. `parts` are exchanged in this order; they cover every trainable group,
  // each a multiple of kSliceElements, and are the same on every rank. If left out, each group is
  // one part. Gradients and weights go through the groups of ReduceGroup; `host` has all ranks and
  // sums the norm. All are borrowed.
  ShardedAdamW(model::ParameterStore& store, dist::Collective& host, const dist::Groups& groups,
               const OptimizerOptions& options, tensor::Device device,
               std::vector<GradientPart> parts = {});

  // In a planning context: allocates and frees the scratch of reduce_gradients, step and
  // weight_norm.
  void plan_step(const ops::Context& ctx) const;
  // Whether parts are summed concurrently with the caller's work, so that an early start saves
  // time.
  bool sums_beside() const;
  // Queues the sum of part `index` over ranks after the work that the stream holds now; the sum
  // runs concurrently with later work. Parts must come in order, and nothing may write them until
  // reduce_gradients. Every rank queues the same parts in the same order. The times and the number
  // of these calls may differ by rank and change no bit.
  void start_gradient_part(const ops::Context& ctx, int64_t index);
  // Like start_gradient_part, for all remaining parts. Call it before any host collective: another
  // rank may reach that collective only after its parts are summed.
  void start_remaining_parts(const ops::Context& ctx);
  // Sums the remaining gradients over ranks into their owners; returns the global 2-norm, NaN or
  // Inf if a gradient is NaN or Inf. Only one of several replicas counts (HfPart::is_counted).
  // Collective.
  double reduce_gradients(const ops::Context& ctx);
  // One update with the reduced gradients, scaled down to clip_grad if `gradient_norm` exceeds it;
  // afterwards every rank has the new weights. Collective.
  void step(const ops::Context& ctx, double learning_rate, double gradient_norm);
  // 2-norm of all trained weights, from the masters. Collective.
  double weight_norm(const ops::Context& ctx) const;
  // Host memory of the state, staging included; 0 if the state is on the device.
  int64_t host_bytes() const { return host_state_ ? host_state_->size_bytes() : 0; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }
  // Resets moments and step count to zero, as at construction; keeps the masters.
  void reset_moments();

  // One entry per group of the store, for checkpoints.
  std::span<const OwnedGroup> groups() const { return groups_; }
  // Copies the store's weights to the masters, as at construction.
  void take_master();
  // Copies the masters to the weights on every rank, after a state was loaded. Collective.
  void publish_master();
  // Gathers all reduced gradients on every rank; between reduce_gradients and the next step.
  // Collective.
  void gather_gradients(const ops::Context& ctx);

 private:
  struct Part {
    size_t group = 0;
    std::vector<dist::Range> slices;  // by rank
  };
  void cut_groups(const dist::Groups& groups, const std::vector<GradientPart>& parts);
  void allocate_state(tensor::Device device);
  std::vector<ops::ElementRange> counted_ranges(const OwnedGroup& group) const;
  std::vector<ops::ElementRange> counted_state(const OwnedGroup& group) const;
  std::vector<ops::DecayRange> decay_ranges(const OwnedGroup& group) const;
  double sum_squares_of_gradients(const ops::Context& ctx) const;
  double sum_squares_of_masters(const ops::Context& ctx) const;
  void update(const ops::Context& ctx, const ops::AdamWStep& adamw);
  void update_on_device(const ops::Context& ctx, const ops::AdamWStep& adamw) const;
  void reduce_part(tensor::Stream stream, tensor::Arena& scratch, const Part& part) const;
  int64_t measure_reduction(tensor::Device device) const;
  void gather_weights(const ops::Context& ctx) const;

  model::ParameterStore& store_;
  dist::Collective& host_;
  OptimizerOptions options_;
  std::vector<OwnedGroup> groups_;  // in the order of the store's groups
  std::vector<Part> parts_;
  tensor::Buffer state_;                 // on the device, or
  std::optional<HostState> host_state_;  // in host memory
  tensor::Arena scratch_;                // for sums over ranks
  tensor::Arena no_scratch_;             // for copies, which need none
  int64_t num_steps_ = 0;
  size_t num_started_parts_ = 0;
  tensor::Stream exchange_stream_;
  tensor::Event ready_, summed_;
};

}  // namespace slimexx::train
