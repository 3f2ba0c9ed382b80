// The context that every op, block and stage runs in, and the rules that all ops share.
//
// An op is checked mathematics on tensors. Only ops call kernels/. An op checks shapes, dtypes and
// devices (SLX_CHECK: a wrong shape is a bug in this program), then runs the CPU reference
// (src/ops/cpu) or launches the CUDA kernel on the stream. Ops never allocate device memory, never
// synchronise unless they say so, and keep the numeric contract (docs/numerics.md): in forward ops
// a row of the output depends only on its own row of the input, in one fixed order of operations.
//
// Legend of ops/*.h: T packed tokens (rows), H hidden size, N output features, K input features, D
// head dimension, Hq query heads, Hkv key/value heads, V vocabulary, F feed-forward size, R
// selected rows, B sequences. Weights, activations, their gradients, keys and values have
// tensor::compute_dtype (f32 on the CPU, bf16 on CUDA). Always f32: gradients of weights, optimizer
// state, logits, log-probs, statistics, rotary tables. Row tensors marked "(strided)" may be
// strided views in their first dimension; all others are contiguous. On CUDA the ops marked
// (scratch) take memory from the context's arena while they run. Every op accepts zero rows: then
// it launches nothing, and writes only those gradients of weights that it does not accumulate.
#pragma once
#include <cstdint>

#include "slimexx/dist/groups.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::ops {

using tensor::Tensor;

class DeferredProducts;  // deferred.h

// Plain references, cheap to copy; the caller keeps arena and groups alive. Results of blocks and
// the scratch of ops come from `arena`, a stack: the last allocation is released first. With a
// planning stream and a planning arena the same calls only measure: they check their arguments,
// allocate and release, but launch nothing and send nothing.
struct Context {
  tensor::Stream stream;
  tensor::Arena& arena;
  const dist::Groups& groups = dist::groups_of_one();  // the ranks that work on the same step
  // Upper bound on tokens of the EP x ETP group. Above 0, buffers have this size and row counts
  // stay on the device. 0: the host reads the counts, and plans assume that every rank has as many
  // tokens as this rank.
  int64_t most_ep_rows = 0;
  // Collects the products of matmul_backward_weight for later; null: products run at once.
  DeferredProducts* deferred = nullptr;

  tensor::Device device() const { return stream.device; }
  bool planning() const { return stream.is_planning; }
};

// Work on the compute stream of the arena's device.
Context compute_context(tensor::Arena& arena, const dist::Groups& groups = dist::groups_of_one());
// Measures into `plan`, which comes from Arena::for_planning.
Context planning_context(tensor::Arena& plan, const dist::Groups& groups = dist::groups_of_one(),
                         int64_t most_ep_rows = 0);

}  // namespace slimexx::ops
