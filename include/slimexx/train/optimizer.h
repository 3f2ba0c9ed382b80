// AdamW over a ParameterStore, its state sharded over data-parallel ranks (ZeRO-1): every rank
// reduces, updates and keeps one contiguous range of the flat parameters, then all gather the new
// weights. On CUDA ranks exchange device memory, and gradients part by part: a part may start while
// backward is still at work on others.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/dist/communicator.h"
#include "slimexx/dist/device_communicator.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/ops.h"
#include "slimexx/train/options.h"

namespace slimexx::train {

class ShardedAdamW {
 public:
  // The master weights start as the store's weights. Collective in that all ranks make one.
  // `exchange` has the ranks of `communicator`; left out, one is made where several ranks run on
  // CUDA, and none else: then all goes through `communicator`.
  ShardedAdamW(model::ParameterStore& store, dist::Communicator& communicator,
               const OptimizerOptions& options, tensor::Device device,
               std::unique_ptr<dist::DeviceCommunicator> exchange = nullptr);

  // On a planning stream: takes and gives back the scratch of reduce_gradients and step.
  void plan_step(ops::Stream stream) const;
  // The parts of the flat gradients that are summed over ranks one by one, in this order; they
  // cover it. One part holds all unless this is called. The same on every rank.
  void set_gradient_parts(std::vector<dist::Range> parts);
  // Part `index` is final when what `stream` holds has run: its sum over ranks is queued behind
  // that, beside what `stream` gets from now on. Parts come in order, and nothing writes them until
  // reduce_gradients. Every rank queues the same parts in the same order: how many of them by this
  // call, and when, is its own affair, and changes no bit. Does nothing without an exchange.
  void start_gradient_part(ops::Stream stream, int64_t index);
  // The same for all parts that are left. Call it before any collective of the host: another rank
  // may not get there before its parts are summed.
  void start_remaining_parts(ops::Stream stream);
  // Sums what is left of the gradients over ranks, into this rank's range; returns their global
  // 2-norm (NaN or Inf if any gradient is). Collective.
  double reduce_gradients(ops::Stream stream);
  // One update with the reduced gradients, scaled down to clip_grad where `gradient_norm` exceeds
  // it; then every rank has the new weights. Collective.
  void step(ops::Stream stream, double learning_rate, double gradient_norm);
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

  // This rank's range of the flat parameters and its state, [range.size()] each: for checkpoints.
  // The master is f32, the moments are of options.state_dtype.
  dist::Range range() const { return ranges_[static_cast<size_t>(communicator_.rank())]; }
  const std::vector<dist::Range>& ranges() const { return ranges_; }
  tensor::Tensor master() const { return master_; }
  tensor::Tensor exp_avg() const { return exp_avg_; }
  tensor::Tensor exp_avg_sq() const { return exp_avg_sq_; }
  // The masters become the weights of the store, as at construction.
  void take_master(ops::Stream stream);
  // After the state was loaded: the weights become the masters', on every rank. Collective.
  void publish_master(ops::Stream stream);
  // Between reduce_gradients and the next step: all reduced gradients on every rank. Collective.
  void gather_gradients(ops::Stream stream);

 private:
  std::vector<ops::DecayRange> decay_ranges() const;
  void gather(ops::Stream stream, const tensor::Tensor& flat);
  model::ParameterStore& store_;
  dist::Communicator& communicator_;
  OptimizerOptions options_;
  std::vector<dist::Range> ranges_;
  tensor::Buffer state_, scratch_;
  tensor::Tensor master_, exp_avg_, exp_avg_sq_;
  int64_t num_steps_ = 0;
  std::vector<dist::Range> parts_;
  size_t num_started_parts_ = 0;
  tensor::Stream exchange_stream_;
  tensor::Event ready_, summed_;
  // Last, so that it goes first: after a failure the memory above is freed only once nothing waits.
  std::unique_ptr<dist::DeviceCommunicator> exchange_;
};

}  // namespace slimexx::train
