// The lightning indexer of sparse attention (DeepSeek-V3.2, GLM-5): a few small heads, which share
// one key, score the earlier keys of each query, and attention sees only the best top_k. The
// indexer is part of latent attention (mla_attention.h) and computes its queries from that block's
// normed low-rank queries. The indexer is frozen: no gradient flows through a selection.
//
// Legend: T packed tokens, H hidden size, Rq rank of queries, n index heads, D elements per head.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/model/batch.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct IndexerParameters {
  T q_weight;             // [n D, Rq]
  T k_weight;             // [D, H]
  T k_norm, k_norm_bias;  // [D], of a LayerNorm
  T head_weight;          // [n, H]: computes the weight of each head for a query
};

template <class View>
IndexerParameters<Tensor> bind(const IndexerParameters<ParameterId>& p, const View& view) {
  return {view(p.q_weight), view(p.k_weight), view(p.k_norm), view(p.k_norm_bias),
          view(p.head_weight)};
}

struct IndexerSpec {
  int64_t hidden_size = 0, q_rank = 0;
  int64_t num_heads = 0, head_dim = 0;
  double norm_eps = 1e-6;  // of the keys' LayerNorm
  bool fp8_cache = false;  // keys are rounded to FP8 (ops/cache_rows.h)
  bool operator==(const IndexerSpec&) const = default;
};

IndexerParameters<ParameterId> no_indexer();
IndexerParameters<ParameterId> declare_indexer(ParameterList& list, const IndexerSpec& spec,
                                               const std::string& own, const std::string& hf);
double forward_flops(const IndexerSpec& spec, int64_t num_tokens);

// Throws Error(kInput) for sizes that the device's kernels do not support; the CPU supports any
// size.
void check_device_sizes(const IndexerSpec& spec, tensor::Device device);

// Pages hold one index key per token. `memory` begins with the keys; with fp8_cache their scales
// follow.
int64_t page_bytes(const IndexerSpec& spec, DType dtype, int64_t page_tokens);
ops::CacheRows make_pages(const IndexerSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                          int64_t page_tokens);

// selected[T,k] i32: the k keys that each query sees (ops::select_keys). q_normed[T,Rq] and
// normed[T,H] are the layer's normed low-rank queries and its normed input. Paged: the batch's
// index keys are written to index_pages first.
void select_keys(const ops::Context& ctx, const IndexerSpec& spec,
                 const IndexerParameters<Tensor>& w, const ops::RotaryTable& rotary,
                 const Batch& batch, const ops::CacheRows& index_pages, Tensor q_normed,
                 Tensor normed, Tensor selected);

}  // namespace slimexx::model
