// AdamW over a ParameterStore, its state sharded over data-parallel ranks (ZeRO-1): every rank
// reduces, updates and keeps one contiguous range of the flat parameters, then all gather the new
// weights.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/communicator.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/ops.h"
#include "slimexx/train/options.h"

namespace slimexx::train {

class ShardedAdamW {
 public:
  // The master weights start as the store's weights. Collective in that all ranks make one.
  ShardedAdamW(model::ParameterStore& store, dist::Communicator& communicator,
               const OptimizerOptions& options, tensor::Device device);

  // On a planning stream: takes and gives back the scratch of the two calls below.
  void plan_step(ops::Stream stream) const;
  // Sums the gradients over ranks, into this rank's range; returns their global 2-norm (NaN or Inf
  // if any gradient is). Collective.
  double reduce_gradients(ops::Stream stream);
  // One update with the reduced gradients, scaled down to clip_grad where `gradient_norm` exceeds
  // it; then every rank has the new weights. Collective.
  void step(ops::Stream stream, double learning_rate, double gradient_norm);
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

  // This rank's range of the flat parameters and its state, [range.size()] f32 each: for
  // checkpoints.
  dist::Range range() const { return ranges_[static_cast<size_t>(communicator_.rank())]; }
  const std::vector<dist::Range>& ranges() const { return ranges_; }
  tensor::Tensor master() const { return master_; }
  tensor::Tensor exp_avg() const { return exp_avg_; }
  tensor::Tensor exp_avg_sq() const { return exp_avg_sq_; }
  // The masters become the weights of the store, as at construction.
  void take_master(ops::Stream stream);
  // After the state was loaded: the weights become the masters', on every rank. Collective.
  void publish_master(ops::Stream stream);

 private:
  std::vector<ops::DecayRange> decay_ranges() const;
  void gather_weights();
  model::ParameterStore& store_;
  dist::Communicator& communicator_;
  OptimizerOptions options_;
  std::vector<dist::Range> ranges_;
  tensor::Buffer state_, scratch_;
  tensor::Tensor master_, exp_avg_, exp_avg_sq_;
  int64_t num_steps_ = 0;
};

}  // namespace slimexx::train
