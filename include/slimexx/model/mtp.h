// An MTP layer (multi-token prediction) predicts token i + 2 from the model's hidden state of token
// i and the embedding of token i + 1; the next layer predicts one token further, from this layer's
// output and the embedding of token i + 2:
//   x = input([norm(embedding); norm(hidden)]);   y = decoder layer(x);   logits = head(norm(y))
// Rotary positions are those of the hidden states. decoder.h runs MTP layers: mtp_forward over
// packed sequences, mtp_step over pages.
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
  T final_norm;  // [H]; followed by the model's head
};

// The values that backward needs.
struct MtpTape {
  Tensor embedded = {};  // [T,H] embeddings
  Tensor hidden = {};    // [T,H] the layer's input
  Tensor joined = {};    // [T,2H] norms of embedding and hidden state
  LayerTape layer = {};
};

}  // namespace slimexx::model
