// AdamW over a ParameterStore, its state sharded over data-parallel ranks (ZeRO-1): the flat
// parameters are cut into parts, every rank reduces, updates and keeps one slice of each part
// (gradient_parts.h), then all gather the new weights. Over NCCL a part's gradients may go while
// backward is still at work on others.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/dist/groups.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/optimizer.h"
#include "slimexx/train/gradient_parts.h"
#include "slimexx/train/options.h"

namespace slimexx::train {

class ShardedAdamW {
 public:
  // Of the store's one trainable group; frozen parameters keep their bytes. The master weights
  // start as the group's weights. Collective in that all ranks make one.
  // `parts` of the flat parameters are exchanged one by one, in this order; they cover it, each a
  // multiple of kSliceElements, the same on every rank. Left out, one part holds all. Gradients and
  // weights go through groups.dp; `host` has all ranks and adds up the norm. Both are borrowed.
  ShardedAdamW(model::ParameterStore& store, dist::Collective& host, const dist::Groups& groups,
               const OptimizerOptions& options, tensor::Device device,
               std::vector<dist::Range> parts = {});

  // In a planning context: takes and gives back the scratch of reduce_gradients, step and
  // weight_norm.
  void plan_step(const ops::Context& ctx) const;
  // Part `index` is final when what the stream holds has run: its sum over ranks is queued behind
  // that, beside what the stream gets from now on. Parts come in order, and nothing writes them
  // until reduce_gradients. Every rank queues the same parts in the same order: how many of them by
  // this call, and when, is its own affair, and changes no bit.
  void start_gradient_part(const ops::Context& ctx, int64_t index);
  // The same for all parts that are left. Call it before any collective of the host: another rank
  // may not get there before its parts are summed.
  void start_remaining_parts(const ops::Context& ctx);
  // Sums what is left of the gradients over ranks, each into its owner's; returns their global
  // 2-norm (NaN or Inf if any gradient is). Collective.
  double reduce_gradients(const ops::Context& ctx);
  // One update with the reduced gradients, scaled down to clip_grad where `gradient_norm` exceeds
  // it; then every rank has the new weights. Collective.
  void step(const ops::Context& ctx, double learning_rate, double gradient_norm);
  // 2-norm of all weights, as the masters hold them. Collective.
  double weight_norm(const ops::Context& ctx) const;
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

  // What this rank owns of the flat parameters, and its state, one element each: for checkpoints.
  // The master is f32, the moments are of options.state_dtype.
  const std::vector<OwnedPiece>& pieces() const { return pieces_; }
  // Everybody's slices: of part p and rank r [p * ranks + r].
  const std::vector<dist::Range>& slices() const { return slices_; }
  tensor::Tensor master() const { return master_; }
  tensor::Tensor exp_avg() const { return exp_avg_; }
  tensor::Tensor exp_avg_sq() const { return exp_avg_sq_; }
  // The masters become the weights of the store, as at construction.
  void take_master();
  // After the state was loaded: the weights become the masters', on every rank. Collective.
  void publish_master();
  // Between reduce_gradients and the next step: all reduced gradients on every rank. Collective.
  void gather_gradients(const ops::Context& ctx);

 private:
  std::span<const dist::Range> slices_of(size_t part) const;
  std::vector<ops::ElementRange> owned_ranges() const;
  std::vector<ops::DecayRange> decay_ranges() const;
  void reduce_part(tensor::Stream stream, tensor::Arena& scratch, size_t part) const;
  int64_t measure_reduction(tensor::Device device) const;
  void gather(const ops::Context& ctx, const tensor::Tensor& flat);
  model::ParameterStore& store_;
  const model::ParameterGroup& group_;  // the trained one; frozen ones are left alone
  dist::Collective& host_;
  dist::Collective& dp_;
  OptimizerOptions options_;
  std::vector<dist::Range> parts_, slices_;
  std::vector<OwnedPiece> pieces_;
  tensor::Buffer state_;
  tensor::Arena scratch_;     // of the sums over ranks
  tensor::Arena no_scratch_;  // of copies, which need none
  tensor::Tensor master_, exp_avg_, exp_avg_sq_;
  int64_t num_steps_ = 0;
  size_t num_started_parts_ = 0;
  tensor::Stream exchange_stream_;
  tensor::Event ready_, summed_;
};

}  // namespace slimexx::train
