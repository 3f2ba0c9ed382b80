// What every op, block and stage runs in, and what all ops have in common.
//
// An op is checked mathematics on tensors, and the only caller of kernels/. It checks shapes,
// dtypes and devices (SLX_CHECK: a wrong shape is our own bug), then runs the CPU reference
// (src/ops/cpu) or launches the CUDA kernel on the stream. Ops never allocate device memory, never
// synchronise unless they say so, and keep the numeric contract (docs/numerics.md): in forward ops
// a row of the output depends on its own row of the input only, by one fixed order of operations.
//
// Legend of ops/*.h: T packed tokens (rows), H hidden size, N output features, K input features, D
// head dimension, Hq query heads, Hkv key/value heads, V vocabulary, F feed-forward size, R
// selected rows, B sequences. Weights, activations, their gradients, keys and values are of
// tensor::compute_dtype (f32 on the CPU, bf16 on CUDA); said to be f32 everywhere: gradients of
// weights, optimizer state, logits, log-probs, statistics, rotary tables. Row tensors may be
// strided views in their first dimension where said "(strided)"; all else is contiguous. On CUDA
// the ops marked (scratch) take memory from the context's arena while they run. Any op takes zero
// rows: it launches nothing, and writes nothing but gradients of weights that are not added to.
#pragma once
#include <cstdint>

#include "slimexx/dist/groups.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::ops {

using tensor::Tensor;

class DeferredProducts;  // deferred.h

// Plain references, cheap to copy; the caller keeps arena and groups alive. Results of blocks and
// the scratch of ops come from `arena`, which is a stack: what is allocated last is released first.
// With a planning stream and a planning arena the same calls only measure: they check their
// arguments, take and give back memory, launch nothing and send nothing.
struct Context {
  tensor::Stream stream;
  tensor::Arena& arena;
  const dist::Groups& groups = dist::groups_of_one();  // the ranks that work on the same step
  // The most rows that the ranks of groups.ep and of groups.etp have together, for plans. 0: as
  // many as this one, each. Outside of plans: room is taken for so many, so that the number of rows
  // that experts get may stay on the device; 0: the host asks for it.
  int64_t most_ep_rows = 0;
  // Where matmul_backward_weight leaves its products; null: they run at once.
  DeferredProducts* deferred = nullptr;

  tensor::Device device() const { return stream.device; }
  bool planning() const { return stream.is_planning; }
};

// Work on the compute stream of the arena's device.
Context compute_context(tensor::Arena& arena, const dist::Groups& groups = dist::groups_of_one());
// Measures into `plan`, an Arena::for_planning.
Context planning_context(tensor::Arena& plan, const dist::Groups& groups = dist::groups_of_one(),
                         int64_t most_ep_rows = 0);

}  // namespace slimexx::ops
