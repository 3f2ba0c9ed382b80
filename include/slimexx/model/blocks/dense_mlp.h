// The dense MLP: down(silu(gate) * up), gate and up by one product.
//
// With tensor parallelism a rank has either a column shard for all rows, or (replicated) the whole
// block for its own rows.
//
// Legend: T packed tokens, H hidden size, F feed-forward size of this rank's shard. Tensors [t,H]
// hold this rank's rows of the residual stream. If the block is replicated, T is t.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/batch.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct DenseMlpParameters {
  T gate_up_weight, gate_up_bias;  // [2F,H], [2F]
  T down_weight, down_bias;        // [H,F], [H]
};

struct DenseMlpTape {
  Tensor gate_up = {};  // [T,2F]; backward puts its gradient in its place. Undefined where no
                        // backward reads it: then h is made in the product
  Tensor h = {};        // [T,F] silu(gate) * up; undefined: made from gate_up where it is read
};

struct DenseMlpSpec {
  template <class T>
  using Parameters = DenseMlpParameters<T>;
  using Tape = DenseMlpTape;

  int64_t hidden_size = 0, intermediate_size = 0;
  bool bias = false;
  bool fused_gate_up = false;  // gate and up are one tensor on disk
  int64_t leaves = 1;          // leaves of the down product on this rank (row_parallel.h)
  // Every tp rank has the whole block and computes its own rows in `leaves` leaves. Forward only.
  bool is_replicated = false;
  bool operator==(const DenseMlpSpec&) const = default;
};

// The shard of one rank: its columns of the hidden layer. Throws Error(kUsage) if they do not
// divide.
DenseMlpSpec narrow(const DenseMlpSpec& spec, const dist::GridSizes& sizes);

DenseMlpParameters<ParameterId> declare(ParameterList& list, const DenseMlpSpec& spec,
                                        const std::string& own, const std::string& hf);
// The same with full prefixes, for a shared expert, whose parameters are not under "mlp.".
DenseMlpParameters<ParameterId> declare_dense_mlp(ParameterList& list, const DenseMlpSpec& spec,
                                                  const std::string& own, const std::string& hf);
inline void check_device_sizes(const DenseMlpSpec&, tensor::Device) {}
double forward_flops(const DenseMlpSpec& spec, int64_t num_tokens);

void allocate_kept(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows, LayerKeep level,
                   DenseMlpTape& tape);
// `for_backward`: allocates gate_up, which backward reads; otherwise only h.
void allocate_rest(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows, bool for_backward,
                   DenseMlpTape& tape);

// Whether the tape holds the results of project_up; otherwise recompute runs it again.
inline bool keeps_up(const DenseMlpTape& tape) { return tape.gate_up.defined(); }
// Lets recompute keep h, an intermediate of project_down, for backward.
void keep_down_input(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows,
                     DenseMlpTape& tape);

// Fills tape.gate_up if it is defined, otherwise tape.h, from normed[t,H].
void project_up(const ops::Context& ctx, const DenseMlpSpec& spec,
                const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                Tensor normed);
// Writes down[t,H]. If h is computed from gate_up here, it stays in `tape.h` if that is defined.
void project_down(const ops::Context& ctx, const DenseMlpSpec& spec,
                  const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                  Tensor down);

// dnormed[t,H] is written; gradients as in gqa_attention.h. dout[t,H] is the gradient of down;
// normed[t,H] is the block's input.
void backward(const ops::Context& ctx, const DenseMlpSpec& spec,
              const DenseMlpParameters<Tensor>& w, const DenseMlpParameters<Tensor>& g,
              const Batch& batch, const DenseMlpTape& tape, Tensor dout, Tensor normed,
              Tensor dnormed, bool accumulate);

}  // namespace slimexx::model
