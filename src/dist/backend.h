// The interface between Collective and the layer that moves bytes. Collective checks the arguments.
// On planning streams it calls only plan_sent, and for a single rank it needs no backend.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

enum class Combine : uint8_t { kSum, kMax };

// Bytes to or from another rank.
struct Message {
  int peer = 0;
  char* data = nullptr;
  int64_t size_bytes = 0;
};

// One operand [n] per rank. `own` is this rank's and becomes the result; `others` has those of the
// other ranks, concatenated in rank order.
struct Terms {
  char* own = nullptr;
  const char* others = nullptr;
  int rank = 0, size = 1;
  int64_t n = 0;
  tensor::DType dtype = tensor::DType::kF32;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual tensor::Device device() const = 0;
  virtual void barrier() = 0;
  virtual void broadcast(tensor::Stream stream, char* data, int64_t size_bytes, int root) = 0;
  // Like Collective::all_gather_ranges, with ranges in bytes.
  virtual void all_gather_ranges(tensor::Stream stream, char* data,
                                 std::span<const Range> ranges) = 0;
  // Sends and receives together, at most one of each per peer. A message may be empty.
  virtual void exchange(tensor::Stream stream, std::span<const Message> sends,
                        std::span<const Message> receives) = 0;
  // Combines the terms from the first rank to the last. BF16 sums accumulate in f32 and round once.
  virtual void combine(tensor::Stream stream, const Terms& terms, Combine combine);
  // Whether operations return before they are complete.
  virtual bool is_queued() const { return false; }
  // Whether the backend has native reductions, which compute sums of SumOrder::kAny and maxima in
  // place. Tensors have one dimension; ranges are in elements.
  virtual bool reduces() const { return false; }
  virtual void reduce_scatter_sum(tensor::Stream, tensor::Tensor, std::span<const Range>) {}
  virtual void all_reduce(tensor::Stream, tensor::Tensor, Combine) {}
  // Records the bytes that a call on a planning stream would send from this rank. A collective
  // counts as a ring; an exchange of rows counts as spread evenly over the ranks.
  virtual void plan_sent(int64_t) {}
  virtual std::unique_ptr<Backend> split(int color, int key) = 0;  // null: a group of one
  virtual std::unique_ptr<Backend> on_device(tensor::Device) { return nullptr; }  // see Collective
  virtual std::unique_ptr<SharedCounter> make_counter() = 0;
  int64_t num_path_decisions = 0;  // counted by path_check.h
};

// Queues the sum of `terms` in rank order on the stream's device. Only in builds with CUDA.
void sum_on_device(tensor::Stream stream, const Terms& terms);

}  // namespace slimexx::dist
