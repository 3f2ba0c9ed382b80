// AdamW over a ParameterStore, its state sharded over data-parallel ranks (ZeRO-1): the flat
// parameters of every trainable group are cut into parts; every rank reduces, updates and keeps one
// slice of each part (gradient_parts.h), then all gather the new weights. Over NCCL a part's
// gradients may go while backward is still at work on others.
//
// Under options.optimizer_cpu_offload the state is in host memory (host_state.h), with the same
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

// What this rank owns of a group of parameters: of a trainable one with its optimizer state, of a
// frozen one a share to write to files. The master is f32, the moments are of options.state_dtype.
struct OwnedGroup {
  const model::ParameterGroup* parameters = nullptr;
  dist::Collective* ranks = nullptr;  // that share the group: see ReduceGroup
  std::vector<dist::Range> slices;    // everybody's: of part p and rank r [p * ranks + r]
  std::vector<OwnedPiece> pieces;     // this rank's
  // [elements of pieces], on the device or in host memory; undefined if frozen
  tensor::Tensor master, exp_avg, exp_avg_sq;
  bool is_trained() const { return parameters->trainable; }
};

class ShardedAdamW {
 public:
  // The master weights start as the store's; frozen parameters keep their bytes. Collective in that
  // all ranks make one. `parts` are exchanged one by one, in this order; they cover every trainable
  // group, each a multiple of kSliceElements, the same on every rank. Left out, a group is one
  // part. Gradients and weights go through the groups of ReduceGroup; `host`
  // has all ranks and adds up the norm. All are borrowed.
  ShardedAdamW(model::ParameterStore& store, dist::Collective& host, const dist::Groups& groups,
               const OptimizerOptions& options, tensor::Device device,
               std::vector<GradientPart> parts = {});

  // In a planning context: takes and gives back the scratch of reduce_gradients, step and
  // weight_norm.
  void plan_step(const ops::Context& ctx) const;
  // Whether parts are summed beside the caller's work, so that it pays to start them early.
  bool sums_beside() const;
  // Part `index` is final when what the stream holds has run: its sum over ranks is queued behind
  // that, beside what the stream gets from now on. Parts come in order, and nothing writes them
  // until reduce_gradients. Every rank queues the same parts in the same order: how many of them by
  // this call, and when, is its own affair, and changes no bit.
  void start_gradient_part(const ops::Context& ctx, int64_t index);
  // The same for all parts that are left. Call it before any collective of the host: another rank
  // may not get there before its parts are summed.
  void start_remaining_parts(const ops::Context& ctx);
  // Sums what is left of the gradients over ranks, each into its owner's; returns their global
  // 2-norm (NaN or Inf if any gradient is), in which of replicas one counts
  // (HfPart::is_counted). Collective.
  double reduce_gradients(const ops::Context& ctx);
  // One update with the reduced gradients, scaled down to clip_grad where `gradient_norm` exceeds
  // it; then every rank has the new weights. Collective.
  void step(const ops::Context& ctx, double learning_rate, double gradient_norm);
  // 2-norm of all trained weights, as the masters hold them. Collective.
  double weight_norm(const ops::Context& ctx) const;
  // Of the state in host memory, what crosses included; 0: it is on the device.
  int64_t host_bytes() const { return host_state_ ? host_state_->size_bytes() : 0; }
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }
  // Moments of zero after no step, as at construction; the masters stay.
  void reset_moments();

  // By group of the store, for checkpoints.
  std::span<const OwnedGroup> groups() const { return groups_; }
  // The masters become the weights of the store, as at construction.
  void take_master();
  // After the state was loaded: the weights become the masters', on every rank. Collective.
  void publish_master();
  // Between reduce_gradients and the next step: all reduced gradients on every rank. Collective.
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
  std::vector<OwnedGroup> groups_;  // as those of the store
  std::vector<Part> parts_;
  tensor::Buffer state_;                 // or
  std::optional<HostState> host_state_;  // where it is kept there
  tensor::Arena scratch_;                // of the sums over ranks
  tensor::Arena no_scratch_;             // of copies, which need none
  int64_t num_steps_ = 0;
  size_t num_started_parts_ = 0;
  tensor::Stream exchange_stream_;
  tensor::Event ready_, summed_;
};

}  // namespace slimexx::train
