// The experts of a layer if several ranks share them: dispatches rows to their experts' ranks, runs
// the experts and returns the outputs. Collective over groups.ep and groups.etp.
//
// If kernels can access the memory of all ep ranks (groups.ep_memory) and Context::most_ep_rows
// bounds the rows that can arrive, row counts stay on the device: no host wait, and the work can be
// recorded in a graph. Otherwise the host reads the counts and rows are exchanged by collectives.
//
// Legend: T tokens of this rank, k experts per token, R = T*k routed rows, H hidden size.
#pragma once
#include "slimexx/model/blocks/moe_mlp.h"

namespace slimexx::model {

// Fills tape.returned[R,H] from normed[T,H], with the experts chosen on the tape.
void run_split_experts(const ops::Context& ctx, const MoeMlpSpec& spec,
                       const MoeMlpParameters<Tensor>& w, const MoeMlpTape& tape, Tensor normed);
// Writes dx[R,H] of the routed rows and dweights[T,k], from dout[T,H], the gradient of the weighted
// sum. Each rank gets the gradients of the weights that it holds: its experts, or with ETP its
// shards of them.
void split_experts_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                            const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                            const MoeMlpTape& tape, Tensor dx, Tensor dweights, Tensor dout,
                            Tensor normed, bool accumulate);

}  // namespace slimexx::model
