// The members of a layer's tape: which are kept from forward to backward, and which are scratch.
#pragma once
#include "slimexx/model/transformer.h"

namespace slimexx::model {

// Allocates what `level` keeps of a layer, but x.
void allocate_kept(Arena& arena, const ModelSpec& spec, int64_t num_tokens, LayerKeep level,
                   LayerTape& tape);
// Allocates what the layer's steps fill and `tape` does not hold yet. With `for_backward` that is
// what backward reads: gate_up instead of h.
void allocate_rest(Arena& arena, const ModelSpec& spec, int64_t num_tokens, bool for_backward,
                   LayerTape& tape);

}  // namespace slimexx::model
