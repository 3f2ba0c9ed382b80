#include "slimexx/train/host_state.h"

#include <algorithm>
#include <vector>

#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kConvertedByThread = 1 << 14;

void convert(const Tensor& to, const Tensor& from) {
  const int64_t to_bytes = tensor::dtype_bytes(to.dtype());
  const int64_t from_bytes = tensor::dtype_bytes(from.dtype());
  parallel_for(to.dim(0), kConvertedByThread, [&](int64_t begin, int64_t end) {
    tensor::convert_elements(from.dtype(), static_cast<char*>(from.raw()) + begin * from_bytes,
                             to.dtype(), static_cast<char*>(to.raw()) + begin * to_bytes,
                             end - begin);
  });
}

// Rounded up so that every part of the staging memory is aligned.
int64_t padded(int64_t elements) { return (elements + 63) / 64 * 64; }

std::vector<ops::DecayRange> cut_into_chunks(std::span<const ops::DecayRange> ranges,
                                             int64_t elements) {
  std::vector<ops::DecayRange> chunks;
  for (const ops::DecayRange& range : ranges) {
    for (int64_t begin = range.begin; begin < range.end; begin += elements) {
      ops::DecayRange chunk = range;
      chunk.begin = begin;
      chunk.end = std::min(range.end, begin + elements);
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

}  // namespace

HostState::HostState(tensor::Device device, int64_t state_bytes, DType weight_dtype,
                     int64_t chunk_elements)
    : device_(device),
      chunk_elements_(chunk_elements),
      size_bytes_(state_bytes +
                  kNumSlots * padded(chunk_elements_) *
                      (tensor::dtype_bytes(weight_dtype) + tensor::dtype_bytes(DType::kF32))),
      state_(device, state_bytes, "optimizer state"),
      staging_(device, size_bytes_ - state_bytes, "weights and gradients in flight"),
      no_scratch_({}, 0, "update on the host") {
  char* at = staging_.data();
  const auto take = [&](DType dtype) {
    const Tensor view(at, dtype, {}, {chunk_elements_});
    at += padded(chunk_elements_) * tensor::dtype_bytes(dtype);
    return view;
  };
  for (Slot& slot : slots_) {
    slot.gradients = take(DType::kF32);
    slot.weights = take(weight_dtype);
  }
}

Tensor HostState::view(DType dtype, int64_t num_elements, int64_t offset_bytes) const {
  const Tensor view(state_.data() + offset_bytes, dtype, {}, {num_elements});
  SLX_CHECK_LE(offset_bytes + view.size_bytes(), state_.size_bytes());
  return view;
}

void HostState::update(const ops::Context& ctx, const Group& group,
                       std::span<const ops::DecayRange> ranges, const ops::AdamWStep& step) {
  const std::vector<ops::DecayRange> chunks = cut_into_chunks(ranges, chunk_elements_);
  const tensor::Stream down = tensor::side_stream(device_);
  tensor::Event gradients_final;
  gradients_final.record(ctx.stream);
  gradients_final.wait_on(down);
  const auto slot_of = [&](size_t i) -> Slot& { return slots_[i % kNumSlots]; };
  const auto download = [&](size_t i) {
    const ops::DecayRange& chunk = chunks[i];
    Slot& slot = slot_of(i);
    // The slot is free after the upload of its last weights: the update that produced them has read
    // the gradients.
    slot.uploaded.synchronize();
    tensor::download_later(
        down, slot.gradients.raw(),
        group.gradients.rows(chunk.begin + chunk.shift, chunk.end + chunk.shift));
    slot.downloaded.record(down);
  };
  const ops::Context host{.stream = tensor::compute_stream({}), .arena = no_scratch_};
  for (size_t i = 0; i < chunks.size() && i + 1 < kNumSlots; ++i) download(i);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i + kNumSlots - 1 < chunks.size()) download(i + kNumSlots - 1);
    const ops::DecayRange& chunk = chunks[i];
    const int64_t n = chunk.end - chunk.begin;
    Slot& slot = slot_of(i);
    slot.downloaded.synchronize();
    const auto own = [&chunk](const Tensor& state) { return state.rows(chunk.begin, chunk.end); };
    ops::AdamWStep with_decay = step;
    with_decay.weight_decay = chunk.weight_decay;
    ops::adamw(host, slot.weights.rows(0, n), own(group.master), own(group.exp_avg),
               own(group.exp_avg_sq), slot.gradients.rows(0, n), with_decay);
    tensor::upload(ctx.stream,
                   group.weights.rows(chunk.begin + chunk.shift, chunk.end + chunk.shift),
                   slot.weights.raw());
    slot.uploaded.record(ctx.stream);
  }
}

void HostState::read_weights(Tensor values, Tensor weights) {
  if (tensor::is_planning()) return;
  const tensor::Stream stream = tensor::compute_stream(device_);
  const Slot& slot = slots_[0];
  slot.uploaded.synchronize();
  for (int64_t begin = 0; begin < values.dim(0); begin += chunk_elements_) {
    const int64_t end = std::min(values.dim(0), begin + chunk_elements_);
    tensor::download(stream, slot.weights.raw(), weights.rows(begin, end));
    convert(values.rows(begin, end), slot.weights.rows(0, end - begin));
  }
}

void HostState::write_weights(Tensor weights, Tensor values) {
  if (tensor::is_planning()) return;
  const tensor::Stream stream = tensor::compute_stream(device_);
  const Slot& slot = slots_[0];
  slot.uploaded.synchronize();
  for (int64_t begin = 0; begin < values.dim(0); begin += chunk_elements_) {
    const int64_t end = std::min(values.dim(0), begin + chunk_elements_);
    convert(slot.weights.rows(0, end - begin), values.rows(begin, end));
    tensor::upload(stream, weights.rows(begin, end), slot.weights.raw());
    tensor::synchronize(stream);
  }
}

}  // namespace slimexx::train
