// Mixture of experts: a router sends a token to k of E experts, each a SwiGLU MLP; their weighted
// outputs and that of a shared expert, where the model has one, are summed.
//
// Legend: T packed tokens, H hidden size, E experts, k experts of a token, R = T*k routed rows
// (ops/experts.h), F feed-forward size of an expert.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/model/batch.h"
#include "slimexx/model/blocks/dense_mlp.h"
#include "slimexx/model/expert_placement.h"
#include "slimexx/model/layer_keep.h"
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
  T gate_up_weight;              // [E,2F,H]
  T down_weight;                 // [E,H,F]
  DenseMlpParameters<T> shared;  // only with a shared expert
};

struct MoeMlpTape {
  Tensor logits = {};             // [T,E] f32
  Tensor ids = {}, weights = {};  // [T,k] i32 and f32
  Tensor copies = {};             // [T,k] i32: the ids, or of several copies those of this rank
  ops::RoutedRows routed = {};    // by copy
  // Of one rank of experts:
  Tensor gate_up = {};  // [R,2F], as DenseMlpTape::gate_up
  Tensor h = {};        // [R,F], as DenseMlpTape::h; joined, behind them that of the shared expert
  // Of several: [R,H], what the experts make of the routed rows; of forward alone.
  Tensor returned = {};
  DenseMlpTape shared = {};
  // [T,H] that of the shared expert, where it runs beside the router; of forward alone.
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
  // So many ranks share the experts: evenly, or in an engine expert_copies of them, which may be
  // more than the experts and need not divide.
  int64_t expert_ranks = 1, expert_copies = 0;
  // So many ranks share each expert: a rank has F / etp_ranks columns of gate and of up, and
  // H / etp_ranks of the output.
  int64_t etp_ranks = 1;
  // Set by narrow(): the shared expert is whole on this rank; and as wide as the others besides, so
  // that of a token alone the products of experts take it along, joined.
  bool has_whole_shared = false, can_join_shared = false;

  ExpertPlacement placement() const {
    return {router.num_experts, expert_copies > 0 ? expert_copies : router.num_experts,
            expert_ranks};
  }
  bool operator==(const MoeMlpSpec&) const = default;
};

// What a rank of the grid computes: its experts, its columns of them and of the shared one. The
// router is whole. Columns are of outputs: each is one sum over all inputs, as on one rank.
MoeMlpSpec narrow(const MoeMlpSpec& spec, const dist::GridSizes& sizes);

MoeMlpParameters<ParameterId> declare(ParameterList& list, const MoeMlpSpec& spec,
                                      const std::string& own, const std::string& hf);
// Throws Error(kInput) for sizes that the kernels of a device do not serve.
void check_device_sizes(const MoeMlpSpec& spec, tensor::Device device);
double forward_flops(const MoeMlpSpec& spec, int64_t num_tokens);

// With several ranks of experts, or of an expert, nothing of their rows is kept, whatever the
// level: how many come is known when the router has run, and the most that can come are as many
// ranks times the mean. Backward exchanges the inputs again and repeats one product; exchanges do
// not depend on levels, which ranks choose for themselves.
void allocate_kept(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, LayerKeep level,
                   MoeMlpTape& tape);
// `for_backward`: gate_up, which backward reads, else h alone.
void allocate_rest(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, bool for_backward,
                   MoeMlpTape& tape);

// Whether the tape holds what project_up fills: else recompute runs it again.
inline bool keeps_up(const MoeMlpTape& tape) { return tape.ids.defined(); }
// Recompute keeps h, which project_down makes on its way, for backward.
void keep_down_input(Arena& arena, const MoeMlpSpec& spec, const RowCounts& rows, MoeMlpTape& tape);

// The router's choice, and gate_up or else h of the routed rows, from normed[T,H]. Of several ranks
// of experts: what their owners return, where the tape has a place for it.
void project_up(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
                const Batch& batch, const MoeMlpTape& tape, Tensor normed);
// down[T,H]. The shared expert is added last (numerics N5).
void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  Tensor down);
// The same, added to the residual stream and normed.
void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  const ops::ResidualNorm& residual);

// What backward adds up of this layer's router, and the losses whose gradients it adds. It runs
// once for each microbatch, where forward may run again.
struct RouterBalance {
  Tensor sums = {};  // [2E+2] i64; undefined: none of it
  ops::RouterBalanceRule rule = {};
  ops::PackedSequences sequences = {};
};

// As of the dense MLP. The choice of experts counts as constant.
void backward(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
              const MoeMlpParameters<Tensor>& g, const Batch& batch, const MoeMlpTape& tape,
              Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const RouterBalance& balance = {});

}  // namespace slimexx::model
