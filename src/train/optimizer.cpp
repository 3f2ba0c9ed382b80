#include "slimexx/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

using tensor::DType;

int64_t largest_range(const std::vector<dist::Range>& ranges) {
  int64_t largest = 0;
  for (const auto& r : ranges) largest = std::max(largest, r.size());
  return largest;
}

}  // namespace

ShardedAdamW::ShardedAdamW(model::ParameterStore& store, dist::Communicator& communicator,
                           const OptimizerOptions& options, tensor::Device device)
    : store_(store),
      communicator_(communicator),
      options_(options),
      ranges_(dist::split_range(store.num_elements(), communicator.size())) {
  const int64_t n = range().size();
  state_ = tensor::Buffer(device, 3 * n * 4, "optimizer state");
  master_ = state_.view(DType::kF32, {n});
  exp_avg_ = state_.view(DType::kF32, {n}, n * 4);
  exp_avg_sq_ = state_.view(DType::kF32, {n}, 2 * n * 4);
  if (communicator.size() > 1) {
    scratch_ =
        tensor::Buffer({}, communicator.size() * largest_range(ranges_) * 4, "gradient exchange");
  }
  take_master(tensor::compute_stream(device));
}

double ShardedAdamW::reduce_gradients(ops::Stream stream) {
  const tensor::Tensor gradients = store_.flat_gradients();
  if (communicator_.size() > 1) {
    communicator_.reduce_scatter_sum(
        {gradients.f32(), static_cast<size_t>(gradients.num_elements())}, ranges_,
        {static_cast<float*>(scratch_.data()), static_cast<size_t>(scratch_.size_bytes() / 4)});
  }
  double sum[1] = {ops::sum_of_squares(stream, gradients.rows(range().begin, range().end))};
  communicator_.all_reduce_sum(sum);
  return std::sqrt(sum[0]);
}

void ShardedAdamW::step(ops::Stream stream, double learning_rate, double gradient_norm) {
  ++num_steps_;
  ops::AdamWStep adamw{.lr = static_cast<float>(learning_rate),
                       .beta1 = static_cast<float>(options_.adam_beta1),
                       .beta2 = static_cast<float>(options_.adam_beta2),
                       .eps = static_cast<float>(options_.adam_eps),
                       .weight_decay = 0,  // by range
                       .step = num_steps_,
                       .gradient_scale = 1};
  if (options_.clip_grad > 0 && gradient_norm > options_.clip_grad) {
    adamw.gradient_scale = static_cast<float>(options_.clip_grad / (gradient_norm + 1e-6));
  }
  ops::adamw_ranges(stream, store_.flat_weights().rows(range().begin, range().end), master_,
                    exp_avg_, exp_avg_sq_, store_.flat_gradients().rows(range().begin, range().end),
                    decay_ranges(), adamw);
  gather_weights();
}

// This rank's part of every parameter, counted from the start of its range.
std::vector<ops::DecayRange> ShardedAdamW::decay_ranges() const {
  const dist::Range mine = range();
  std::vector<ops::DecayRange> ranges;
  for (const auto& info : store_.infos()) {
    const int64_t begin = std::max(mine.begin, info.offset);
    const int64_t end = std::min(mine.end, info.offset + info.num_elements());
    if (begin >= end) continue;
    ranges.push_back(
        {.begin = begin - mine.begin,
         .end = end - mine.begin,
         .weight_decay = info.decayed ? static_cast<float>(options_.weight_decay) : 0.0f});
  }
  return ranges;
}

void ShardedAdamW::plan_step(ops::Stream stream) const {
  SLX_CHECK(stream.is_planning);
  const auto own = [&](const tensor::Tensor& flat) {
    return flat.rows(range().begin, range().end);
  };
  ops::sum_of_squares(stream, own(store_.flat_gradients()));
  ops::adamw_ranges(stream, own(store_.flat_weights()), master_, exp_avg_, exp_avg_sq_,
                    own(store_.flat_gradients()), decay_ranges(), {});
}

void ShardedAdamW::gather_weights() {
  const tensor::Tensor weights = store_.flat_weights();
  communicator_.all_gather_ranges(weights.raw(), tensor::dtype_bytes(weights.dtype()), ranges_);
}

void ShardedAdamW::take_master(ops::Stream stream) {
  ops::copy(stream, master_, store_.flat_weights().rows(range().begin, range().end));
}

void ShardedAdamW::publish_master(ops::Stream stream) {
  ops::copy(stream, store_.flat_weights().rows(range().begin, range().end), master_);
  gather_weights();
}

}  // namespace slimexx::train
