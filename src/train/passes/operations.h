// The operations of one rank of a pipeline in one step, as a list made before the step starts;
// run_operations (executor.h) runs it in its order. With one stage it is forward, backward,
// forward, backward; with several, one-forward-one-backward after a warm-up (Narayanan et al.,
// arXiv:2104.04473), and interleaved with several stages on each rank.
//
// With zero_bubble a backward sends the gradient of its input first and leaves the products of
// weight gradients for the pipeline's bubbles. Rank r computes them r microbatches later, so that a
// rank has no more microbatches between forward and weight gradients than there are stages (ZB-H1
// of Qi et al., arXiv:2401.10241). The products run in the order of the microbatches, so sums and
// bits equal those of one-forward-one-backward.
//
// Sends and receives wait for each other: on the CPU a send may return only when the other rank
// receives, and a device runs later work only then. To avoid a deadlock, the lists of all ranks are
// cut from one order of the whole pipeline's operations, in which a transfer is one event of two
// ranks. The first unfinished operation of that order can always run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/train/schedule.h"

namespace slimexx::train {

// Stages send the residual stream forward to the next stage and its gradient backward to the
// previous one.
enum class OperationKind : uint8_t {
  kForward,
  kBackward,
  kWeightGradients,  // that a backward deferred
  kSendForward,
  kSendBackward,
  kReceiveForward,
  kReceiveBackward
};

struct Operation {
  OperationKind kind;
  int64_t microbatch;
  // The slot keeps the microbatch's activations from the forward (or the receive before it) to the
  // backward (or the send after it).
  size_t slot = 0;
  size_t chunk = 0;  // which of the rank's stages
  int peer = -1;     // pipeline rank on the other side of a transfer
  // Index of the list in which a backward leaves its products of weight gradients for
  // kWeightGradients; -1: the backward runs them itself. kWeightGradients ignores its slot.
  int deferred = -1;
  bool operator==(const Operation&) const = default;
};

std::vector<Operation> list_operations(int rank, const PipelineShape& shape,
                                       int64_t num_microbatches);
// Forwards only, microbatches in ascending order on every stage: a scoring pass.
std::vector<Operation> list_forward_operations(int rank, const PipelineShape& shape,
                                               int64_t num_microbatches);

// Number of slots that the operations use.
size_t count_slots(std::span<const Operation> operations);
// Number of lists of deferred products that the operations use.
size_t count_deferred(std::span<const Operation> operations);
// The operations of a step with enough microbatches that more would need no further slot or list of
// deferred products.
std::vector<Operation> list_most_operations(int rank, const PipelineShape& shape);

}  // namespace slimexx::train
