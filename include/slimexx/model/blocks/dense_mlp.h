// The dense MLP: down(silu(gate) * up); one product computes gate and up.
//
// With tensor parallelism a rank holds either a column shard, which it computes for all rows, or
// (replicated) the whole block, which it computes for its own rows.
//
// Legend: T packed tokens, H hidden size, F feed-forward size of this rank's shard. Tensors [t,H]
// hold this rank's rows of the residual stream. If the block is replicated, T is t.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/batch.h"
#include "slimexx/model/block_traits.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/linear.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/router.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct DenseMlpParameters {
  Linear<T> gate_up;  // [2F,H], [2F]
  Linear<T> down;     // [H,F], [H]
};

template <class View>
DenseMlpParameters<Tensor> bind(const DenseMlpParameters<ParameterId>& p, const View& view) {
  return {view(p.gate_up), view(p.down)};
}

struct DenseMlpTape {
  // [T,2F]; backward overwrites it with its gradient. Undefined in a forward without backward: then
  // the product is fused with SwiGLU and only h is computed.
  Tensor gate_up = {};
  Tensor h = {};  // [T,F] silu(gate) * up; undefined: computed from gate_up when needed
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

// The shard of one rank: its columns of the hidden layer. Throws Error(kUsage) if the ranks do not
// divide the columns.
DenseMlpSpec narrow(const DenseMlpSpec& spec, const dist::GridSizes& sizes);

DenseMlpParameters<ParameterId> declare(ParameterList& list, const DenseMlpSpec& spec,
                                        const std::string& own, const std::string& hf);
// Like declare, with full prefixes, for a shared expert, whose parameters are not under "mlp.".
DenseMlpParameters<ParameterId> declare_dense_mlp(ParameterList& list, const DenseMlpSpec& spec,
                                                  const std::string& own, const std::string& hf);
inline void check_device_sizes(const DenseMlpSpec&, tensor::Device) {}
double forward_flops(const DenseMlpSpec& spec, int64_t num_tokens);

// Properties (block_traits.h).
inline const char* kind_name(const DenseMlpSpec&) { return "dense"; }
std::string describe(const DenseMlpSpec& spec);
inline RateClass rate_class(const DenseMlpSpec&) { return RateClass::kDense; }
// Tensors or slices on disk that exist once per expert.
inline int64_t count_named_boxes(const DenseMlpSpec&) { return 0; }
inline void set_leaves(DenseMlpSpec& spec, int64_t leaves) { spec.leaves = leaves; }
inline SplitProduct split_product(const DenseMlpSpec& spec) {
  return {"intermediate_size", 2 * spec.intermediate_size};
}
// Whether tensor-parallel ranks gather and reduce the block's rows. Replicated blocks never do.
inline bool gathers_tp_rows(const DenseMlpSpec&) { return true; }
inline void adapt_to_engine(DenseMlpSpec& spec, const EngineLayout& layout) {
  spec.is_replicated = layout.replicates_dense;
}
// The router and its correction bias [E]: null and undefined for blocks without experts.
inline const ops::RouterRule* router(const DenseMlpSpec&) { return nullptr; }
inline bool has_router_bias(const DenseMlpSpec&) { return false; }
inline Tensor router_bias(const DenseMlpParameters<Tensor>&) { return {}; }

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
// Writes down[t,H]. If h is computed here from gate_up, it is stored in `tape.h` if that is
// defined.
void project_down(const ops::Context& ctx, const DenseMlpSpec& spec,
                  const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                  Tensor down);
// Like project_down above, but the result is added to the residual stream and normed.
void project_down(const ops::Context& ctx, const DenseMlpSpec& spec,
                  const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                  const ops::ResidualNorm& residual);

// dnormed[t,H] is written; gradients as in gqa_attention.h. dout[t,H] is the gradient of down;
// normed[t,H] is the block's input. `balance` is for blocks with a router.
void backward(const ops::Context& ctx, const DenseMlpSpec& spec,
              const DenseMlpParameters<Tensor>& w, const DenseMlpParameters<Tensor>& g,
              const Batch& batch, const DenseMlpTape& tape, Tensor dout, Tensor normed,
              Tensor dnormed, bool accumulate, const RouterBalance& balance = {});

}  // namespace slimexx::model
