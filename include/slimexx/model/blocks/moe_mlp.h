// Mixture of experts: a router sends each token to k of E experts, each a SwiGLU MLP. The output is
// the weighted sum of the experts' outputs, plus the output of the shared expert if there is one.
//
// Legend: T packed tokens, H hidden size, E experts, k experts per token, R = T*k routed rows
// (ops/experts.h), F feed-forward size of an expert.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/model/batch.h"
#include "slimexx/model/blocks/dense_mlp.h"
#include "slimexx/model/expert_placement.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/linear.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/router.h"
#include "slimexx/ops/router_balance.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct MoeMlpParameters {
  T router_weight;               // [E,H]
  T correction_bias;             // [E] f32, without gradient; only with has_correction_bias
  Linear<T> gate_up;             // [E,2F,H]
  Linear<T> down;                // [E,H,F]
  DenseMlpParameters<T> shared;  // only with a shared expert
};

template <class View>
MoeMlpParameters<Tensor> bind(const MoeMlpParameters<ParameterId>& p, const View& view) {
  return {view(p.router_weight), view(p.correction_bias), view(p.gate_up), view(p.down),
          bind(p.shared, view)};
}

struct MoeMlpTape {
  Tensor logits = {};             // [T,E] f32
  Tensor ids = {}, weights = {};  // [T,k] i32 and f32
  Tensor copies = {};             // [T,k] i32: physical experts that this rank's rows go to
  ops::RoutedRows routed = {};    // sorted by copy
  // Only with all experts on this rank:
  Tensor gate_up = {};  // [R,2F], as DenseMlpTape::gate_up
  Tensor h = {};        // [R,F], like DenseMlpTape::h; a joined shared expert's row follows
  // Only with experts on several ranks: [R,H], expert outputs of the routed rows. Forward only.
  Tensor returned = {};
  DenseMlpTape shared = {};
  // [T,H] output of the shared expert if it runs concurrently with the router. Forward only.
  Tensor shared_output = {};
};

struct MoeMlpSpec {
  template <class T>
  using Parameters = MoeMlpParameters<T>;
  using Tape = MoeMlpTape;

  int64_t hidden_size = 0, intermediate_size = 0;  // of one expert
  ops::RouterRule router = {};
  bool has_correction_bias = false;
  std::optional<DenseMlpSpec> shared = {};
  // expert_ranks: ranks that share the experts. expert_copies: physical experts including redundant
  // ones; 0: experts are split evenly. An engine may have more copies than experts, and the number
  // of copies need not be a multiple of the ranks.
  int64_t expert_ranks = 1, expert_copies = 0;
  // Number of ranks that share each expert: a rank has F / etp_ranks columns of gate and of up, and
  // H / etp_ranks columns of the output.
  int64_t etp_ranks = 1;
  // Set by narrow(). has_whole_shared: the shared expert is not sharded. can_join_shared: in
  // addition, it is as wide as a routed expert, so that the expert products of a single token can
  // include it.
  bool has_whole_shared = false, can_join_shared = false;

  ExpertPlacement placement() const {
    return {router.num_experts, expert_copies > 0 ? expert_copies : router.num_experts,
            expert_ranks};
  }
  bool operator==(const MoeMlpSpec&) const = default;
};

// The shard of one rank: its experts, and its columns of these experts and of the shared expert.
// The router is not sharded. Columns are output columns: each is one sum over all inputs, as on one
// rank.
MoeMlpSpec narrow(const MoeMlpSpec& spec, const dist::GridSizes& sizes);

MoeMlpParameters<ParameterId> declare(ParameterList& list, const MoeMlpSpec& spec,
                                      const std::string& own, const std::string& hf);
// Throws Error(kInput) for sizes that the device's kernels do not support.
void check_device_sizes(const MoeMlpSpec& spec, tensor::Device device);
double forward_flops(const MoeMlpSpec& spec, int64_t num_tokens);

// Properties, as in dense_mlp.h.
inline const char* kind_name(const MoeMlpSpec&) { return "moe"; }
std::string describe(const MoeMlpSpec& spec);
inline RateClass rate_class(const MoeMlpSpec&) { return RateClass::kExperts; }
inline int64_t count_named_boxes(const MoeMlpSpec& spec) { return spec.router.num_experts; }
inline void set_leaves(MoeMlpSpec& spec, int64_t leaves) {
  if (spec.shared) spec.shared->leaves = leaves;
}
inline SplitProduct split_product(const MoeMlpSpec& spec) {
  if (!spec.shared) return {};
  return {"moe_intermediate_size", 2 * spec.shared->intermediate_size};
}
inline bool gathers_tp_rows(const MoeMlpSpec& spec) { return spec.shared.has_value(); }
inline void adapt_to_engine(MoeMlpSpec& spec, const EngineLayout& layout) {
  if (spec.shared) spec.shared->is_replicated = layout.replicates_dense;
  if (layout.splits_experts)
    spec.expert_copies = spec.router.num_experts + layout.redundant_experts;
}
inline const ops::RouterRule* router(const MoeMlpSpec& spec) { return &spec.router; }
inline bool has_router_bias(const MoeMlpSpec& spec) { return spec.has_correction_bias; }
inline Tensor router_bias(const MoeMlpParameters<Tensor>& w) { return w.correction_bias; }

// If experts are split over ranks (EP or ETP), no level keeps expert rows: their number is known
// only after the router has run, and its upper bound is the mean times the number of ranks.
// Backward dispatches the inputs again and repeats one product. Exchanges must not depend on the
// level, because each rank chooses its own level.
void allocate_kept(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, LayerKeep level,
                   MoeMlpTape& tape);
// `for_backward`: allocates gate_up, which backward reads; otherwise only h.
void allocate_rest(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, bool for_backward,
                   MoeMlpTape& tape);

// Whether the tape holds the results of project_up; otherwise recompute runs it again.
inline bool keeps_up(const MoeMlpTape& tape) { return tape.ids.defined(); }
// Lets recompute keep h, an intermediate of project_down, for backward.
void keep_down_input(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, MoeMlpTape& tape);

// From normed[T,H], runs the router and fills gate_up, or h, of the routed rows. With experts on
// several ranks it fills tape.returned instead, if that is defined.
void project_up(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
                const Batch& batch, const MoeMlpTape& tape, Tensor normed);
// Writes down[T,H]. The shared expert is added last (numerics N5).
void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  Tensor down);
// Like project_down above, but the result is added to the residual stream and normed.
void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  const ops::ResidualNorm& residual);

// Like backward of the dense MLP. The choice of experts has no gradient.
void backward(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
              const MoeMlpParameters<Tensor>& g, const Batch& batch, const MoeMlpTape& tape,
              Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const RouterBalance& balance = {});

}  // namespace slimexx::model
