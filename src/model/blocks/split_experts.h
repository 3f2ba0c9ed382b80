// The experts' part of a layer whose experts are on several ranks: rows go to the ranks that hold
// their experts, and what these make of them comes back. Collective over groups.ep and groups.etp.
//
// Where kernels reach the memory of all ep ranks (groups.ep_memory) and Context::most_ep_rows says
// how many rows may come, their number stays on the device: nothing waits for it, and the work can
// be recorded. Else it is counted on the host, and rows go by collectives.
//
// Legend: T tokens of this rank, k experts of a token, R = T*k routed rows, H hidden size.
#pragma once
#include "slimexx/model/blocks/moe_mlp.h"

namespace slimexx::model {

// Fills tape.returned[R,H] from normed[T,H], by the choices of the tape.
void run_split_experts(const ops::Context& ctx, const MoeMlpSpec& spec,
                       const MoeMlpParameters<Tensor>& w, const MoeMlpTape& tape, Tensor normed);
// dx[R,H] of the routed rows and dweights[T,k], from the gradient dout[T,H] of the weighted sum.
// Gradients of weights stay with the owners of experts, and of their columns.
void split_experts_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                            const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                            const MoeMlpTape& tape, Tensor dx, Tensor dweights, Tensor dout,
                            Tensor normed, bool accumulate);

}  // namespace slimexx::model
