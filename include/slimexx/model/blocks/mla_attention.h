// Multi-head latent attention (DeepSeek-V2/V3): keys and values of all heads derive from one latent
// row per token, and the cache holds only these rows. Every forward uses the absorbed form
// (numerics): W_K maps queries into the latent space, attention runs over latent rows with one key
// head, and W_V maps the result back. Backward expands keys and values by head.
//
// Sparse attention (DeepSeek-V3.2, GLM-5) restricts a query to selected keys. The layer's own
// indexer selects them, or the layer reuses the selection of the last earlier layer with an
// indexer.
//
// Legend: T packed tokens, H hidden size, n heads; Rq and Rkv ranks of queries and of the latent;
// Dn and Dr unrotated and rotated elements per head, Dv value elements per head.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/batch.h"
#include "slimexx/model/block_traits.h"
#include "slimexx/model/blocks/sparse_index.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/linear.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct MlaParameters {
  Linear<T> a;        // [Rq+Rkv+Dr, H], [Rq+Rkv+Dr]: down-projections; Rq = 0: only for the latent
  T q_norm, kv_norm;  // [Rq], [Rkv]; q_norm only with Rq > 0
  Linear<T> q;        // [n(Dn+Dr), Rq or H]: unrotated rows of all heads, then rotated ones
  T k_weight;         // [n,Dn,Rkv]
  T v_weight;         // [n,Dv,Rkv]
  Linear<T> o;        // [H, n Dv], [H]
  IndexerParameters<T> indexer;
};

template <class View>
MlaParameters<Tensor> bind(const MlaParameters<ParameterId>& p, const View& view) {
  return {view(p.a),        view(p.q_norm),   view(p.kv_norm), view(p.q),
          view(p.k_weight), view(p.v_weight), view(p.o),       bind(p.indexer, view)};
}

struct MlaTape {
  Tensor a = {};         // [t,Rq+Rkv+Dr] before the norms and the rotation
  Tensor q_normed = {};  // [T,Rq]
  Tensor latent = {};    // [T,Rkv+Dr]: the normed latent, then the rotated key that all heads share
  Tensor q = {};         // [T,n(Dn+Dr)] in the order of q.weight, before the rotation
  Tensor attention = {};  // [T,n Dv]
  Tensor lse = {};        // [T,n] f32
};

struct MlaSpec {
  template <class T>
  using Parameters = MlaParameters<T>;
  using Tape = MlaTape;

  int64_t hidden_size = 0, num_heads = 0;
  int64_t q_rank = 0;                                 // Rq; 0: queries are computed from the input
  int64_t kv_rank = 0;                                // Rkv
  int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  // Dn, Dr, Dv
  bool bias = false;        // of the down-projections and the output product
  double norm_eps = 1e-6;   // of q_norm and kv_norm
  int64_t leaves = 1;       // of the output product on this rank (row_parallel.h)
  double scale_factor = 1;  // yarn: multiplies the score scale 1/sqrt(Dn+Dr)
  int64_t top_k = 0;        // keys that a query sees; 0: all
  bool fp8_cache = false;   // latent rows and index keys are rounded to FP8 (ops/cache_rows.h)
  // Selects the keys; a layer without an indexer reuses the last selection.
  std::optional<IndexerSpec> indexer = {};

  int64_t a_size() const { return q_rank + kv_rank + rope_dim; }
  int64_t latent_size() const { return kv_rank + rope_dim; }
  int64_t head_dim() const { return nope_dim + rope_dim; }
  bool operator==(const MlaSpec&) const = default;
};

inline KeyChoice key_choice(const MlaSpec& spec) {
  if (spec.top_k == 0) return {};
  return {.selects = spec.indexer.has_value(), .shares = !spec.indexer, .top_k = spec.top_k};
}

// As in gqa_attention.h.
inline const char* kind_name(const MlaSpec& spec) { return spec.top_k > 0 ? "sparse mla" : "mla"; }
std::string describe(const MlaSpec& spec);
inline RateClass rate_class(const MlaSpec&) { return RateClass::kLatentAttention; }
inline CacheKind cache_kind(const MlaSpec&) { return CacheKind::kPages; }
inline int64_t count_named_boxes(const MlaSpec& spec) { return spec.num_heads; }
inline int64_t rotary_head_dim(const MlaSpec& spec) { return spec.rope_dim; }
inline double score_factor(const MlaSpec& spec) { return spec.scale_factor; }
inline void set_leaves(MlaSpec& spec, int64_t leaves) { spec.leaves = leaves; }
inline void set_fp8_cache(MlaSpec& spec) {
  spec.fp8_cache = true;
  if (spec.indexer) spec.indexer->fp8_cache = true;
}
// Empty: no two ranks hold the same head. All other tensors are whole on every rank, with gradients
// from its own rows.
inline std::vector<CopiedRows> list_copied_rows(const MlaSpec&, const MlaSpec&,
                                                const MlaParameters<Tensor>&, int) {
  return {};
}

// The shard of one rank: its heads. Latent and indexer are not sharded: each rank computes them for
// its own rows and gathers latent rows, index keys and selections from the others.
MlaSpec narrow(const MlaSpec& spec, const dist::GridSizes& sizes);

MlaParameters<ParameterId> declare(ParameterList& list, const MlaSpec& spec, const std::string& own,
                                   const std::string& hf);
void check_device_sizes(const MlaSpec& spec, tensor::Device device);
double forward_flops(const MlaSpec& spec, int64_t num_tokens);
void allocate_kept(Arena& arena, const MlaSpec& spec, const RowCounts& rows, LayerKeep level,
                   MlaTape& tape);
void allocate_rest(Arena& arena, const MlaSpec& spec, const RowCounts& rows, MlaTape& tape);
inline bool keeps_qkv(const MlaTape& tape) { return tape.q.defined(); }

// A page holds latent rows, independent of the number of heads, and index keys if there is an
// indexer. LayerPages::v is undefined.
int64_t page_bytes(const MlaSpec& spec, DType dtype, int64_t page_tokens);
LayerPages make_pages(const MlaSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                      int64_t page_tokens);

void project_qkv(const ops::Context& ctx, const MlaSpec& spec, const MlaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const MlaTape& tape, Tensor normed);
void select_keys(const ops::Context& ctx, const MlaSpec& spec, const MlaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const MlaTape& tape, Tensor normed, Tensor selected);
void attend(const ops::Context& ctx, const MlaSpec& spec, const MlaParameters<Tensor>& w,
            const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
            const MlaTape& tape);
void project_out(const ops::Context& ctx, const MlaSpec& spec, const MlaParameters<Tensor>& w,
                 const Batch& batch, const MlaTape& tape, Tensor o);
void backward(const ops::Context& ctx, const MlaSpec& spec, const MlaParameters<Tensor>& w,
              const MlaParameters<Tensor>& g, const ops::RotaryTable& rotary, const Batch& batch,
              const MlaTape& tape, Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next);

}  // namespace slimexx::model
