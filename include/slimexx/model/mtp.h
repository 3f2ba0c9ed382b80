// An MTP layer (multi-token prediction): of token i + 2 it makes a prediction from the hidden state
// of token i, which the layer before it or the model left, and the embedding of token i + 1:
//   x = input([norm(embedding); norm(hidden)]);   y = decoder layer(x);   logits = head(norm(y))
// Attention sees the positions of the hidden states. Decoder runs it, packed sequences only.
//
// Legend: T packed tokens, H hidden size.
#pragma once
#include "slimexx/model/layer.h"

namespace slimexx::model {

template <class T>
struct MtpParameters {
  T embedding_norm, hidden_norm;  // [H]
  T input;  // [H,2H]: columns of the embedding, then those of the hidden state
  LayerParameters<T> layer;
  T final_norm;  // [H]; the head behind it is the model's
};

// What the backward needs, and where forward finds it.
struct MtpTape {
  Tensor embedded = {};  // [T,H] embeddings
  Tensor hidden = {};    // [T,H] of the layer before
  Tensor joined = {};    // [T,2H] norms of both
  LayerTape layer = {};
};

}  // namespace slimexx::model
