// What one rank of a pipeline does in one step, as a list made before the step starts;
// run_operations (executor.h) runs it in its order. With one stage it is forward, backward,
// forward, backward; with several, one-forward-one-backward after a warm-up (Narayanan et al.,
// arXiv:2104.04473), and interleaved with several stages on each rank.
//
// With zero_bubble a backward sends the gradient of its input first and leaves the products of
// weights' gradients for where the pipeline waits: rank r is r microbatches behind with them, so
// that a rank has no more microbatches between forward and weights than there are stages (ZB-H1 of
// Qi et al., arXiv:2401.10241). They run in the order of the microbatches: the sums, and so the
// bits, are those of one-forward-one-backward.
//
// Sends and receives wait for each other: on the CPU a send may return only when the other rank
// receives, and a device runs what stands behind one only then. The lists of all ranks are cut from
// one order of the whole pipeline's operations, in which a transfer is one event of two ranks. So
// some operation can always go on: the first of that order that is not done.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/train/schedule.h"

namespace slimexx::train {

// Stages send the residual stream forward, to the next stage, and its gradient backward, to the
// stage before.
enum class OperationKind : uint8_t {
  kForward,
  kBackward,
  kWeightGradients,  // what a backward left
  kSendForward,
  kSendBackward,
  kReceiveForward,
  kReceiveBackward
};

struct Operation {
  OperationKind kind;
  int64_t microbatch;
  // That keeps the microbatch's activations from its forward, or the receive before it, to its
  // backward, or the send behind it.
  size_t slot = 0;
  size_t chunk = 0;  // which of the rank's stages
  int peer = -1;     // rank of the pipeline that a transfer is with
  // Where a backward leaves its products of weights' gradients, and kWeightGradients finds them;
  // -1: a backward runs them itself. The slot of kWeightGradients means nothing.
  int deferred = -1;
  bool operator==(const Operation&) const = default;
};

std::vector<Operation> list_operations(int rank, const PipelineShape& shape,
                                       int64_t num_microbatches);
// Forwards alone, of microbatches in ascending order on every stage: scoring.
std::vector<Operation> list_forward_operations(int rank, const PipelineShape& shape,
                                               int64_t num_microbatches);

// Slots that the operations use.
size_t count_slots(std::span<const Operation> operations);
// Places where backwards leave products.
size_t count_deferred(std::span<const Operation> operations);
// Operations of as many microbatches as use the most of both, whatever their number.
std::vector<Operation> list_most_operations(int rank, const PipelineShape& shape);

}  // namespace slimexx::train
