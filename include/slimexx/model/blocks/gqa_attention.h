// Grouped-query attention: one product for queries, keys and values, optional RMSNorm of the heads,
// rotation, causal attention over packed rows or pages, and the output product.
//
// Legend: T packed tokens, H hidden size, D head dimension, Hq/Hkv heads of this rank. Tensors
// [t,H] hold this rank's rows of the residual stream.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/batch.h"
#include "slimexx/model/block_traits.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/linear.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct GqaParameters {
  Linear<T> qkv;     // [(Hq+2Hkv)D, H], [(Hq+2Hkv)D]
  T q_norm, k_norm;  // [D], only with qk_norm
  Linear<T> o;       // [H, Hq D], [H]
};

template <class View>
GqaParameters<Tensor> bind(const GqaParameters<ParameterId>& p, const View& view) {
  return {view(p.qkv), view(p.q_norm), view(p.k_norm), view(p.o)};
}

// Results of forward that backward reads.
struct GqaTape {
  Tensor qkv_raw = {};    // [T,(Hq+2Hkv)D] before QK-norm; undefined without QK-norm
  Tensor qkv = {};        // [T,(Hq+2Hkv)D] normed and rotated; with QK-norm [T,(Hq+Hkv)D]: the
                          // values are in qkv_raw
  Tensor attention = {};  // [T,Hq D]
  Tensor lse = {};        // [T,Hq] f32
};

struct GqaSpec {
  template <class T>
  using Parameters = GqaParameters<T>;
  using Tape = GqaTape;

  int64_t hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false;
  bool qk_norm = false;  // RMSNorm per head on queries and keys before the rotation
  double rms_norm_eps = 1e-6;
  int64_t leaves = 1;      // leaves of the output product on this rank (row_parallel.h)
  bool fp8_cache = false;  // keys and values are rounded to FP8 (ops/cache_rows.h)
  bool operator==(const GqaSpec&) const = default;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
};

// The shard of one rank: its heads. With fewer key/value heads than ranks, neighbouring ranks hold
// the same head. Throws Error(kUsage) if the ranks do not divide the heads.
GqaSpec narrow(const GqaSpec& spec, const dist::GridSizes& sizes);

// Adds the block's parameters; `own` and `hf` are the layer's prefixes ("layers.3.",
// "model.layers.3.").
GqaParameters<ParameterId> declare(ParameterList& list, const GqaSpec& spec, const std::string& own,
                                   const std::string& hf);
// Throws Error(kInput) for sizes that the device's kernels do not support.
void check_device_sizes(const GqaSpec& spec, tensor::Device device);
double forward_flops(const GqaSpec& spec, int64_t num_tokens);

// Properties (block_traits.h).
inline const char* kind_name(const GqaSpec&) { return "gqa"; }
std::string describe(const GqaSpec& spec);
inline RateClass rate_class(const GqaSpec&) { return RateClass::kDense; }
inline CacheKind cache_kind(const GqaSpec&) { return CacheKind::kPages; }
// Tensors or slices on disk that exist once per head.
inline int64_t count_named_boxes(const GqaSpec&) { return 0; }
// Elements of a head that can be rotated.
inline int64_t rotary_head_dim(const GqaSpec& spec) { return spec.head_dim; }
// Factor on the score scale besides 1/sqrt(D).
inline double score_factor(const GqaSpec&) { return 1; }
inline void set_leaves(GqaSpec& spec, int64_t leaves) { spec.leaves = leaves; }
inline void set_fp8_cache(GqaSpec& spec) { spec.fp8_cache = true; }
// Gradient rows of key and value heads that several of `tp` ranks hold. `own` is this rank's shard
// of `whole`, `gradients` its gradients.
std::vector<CopiedRows> list_copied_rows(const GqaSpec& whole, const GqaSpec& own,
                                         const GqaParameters<Tensor>& gradients, int tp);

// Allocates the block's tensors that `level` keeps.
void allocate_kept(Arena& arena, const GqaSpec& spec, const RowCounts& rows, LayerKeep level,
                   GqaTape& tape);
// Allocates the remaining tensors that the block's steps fill.
void allocate_rest(Arena& arena, const GqaSpec& spec, const RowCounts& rows, GqaTape& tape);

// Whether the tape holds the results of project_qkv; otherwise recompute runs it again.
inline bool keeps_qkv(const GqaTape& tape) { return tape.qkv.defined(); }

// The KV cache of a layer: bytes of one page, and views of all pages in `memory`, half of it keys
// and half values. `dtype` is the compute type. With fp8_cache each half has all values, then all
// scales.
int64_t page_bytes(const GqaSpec& spec, DType dtype, int64_t page_tokens);
LayerPages make_pages(const GqaSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                      int64_t page_tokens);

// The steps of forward, in order. Recompute runs those whose results were not kept. project_qkv
// writes tape.qkv (and qkv_raw) from normed[t,H], and the keys and values to the layer's pages if
// there are any.
void project_qkv(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const GqaTape& tape, Tensor normed);
// The keys that the queries see (batch.h), and the step that selects them. Recompute never reruns
// that step, since the tape keeps `selected`. In this block queries see all keys.
inline KeyChoice key_choice(const GqaSpec&) { return {}; }
inline void select_keys(const ops::Context&, const GqaSpec&, const GqaParameters<Tensor>&,
                        const ops::RotaryTable&, const Batch&, const LayerPages&, const GqaTape&,
                        Tensor /*normed*/, Tensor /*selected*/) {}
// Fills tape.attention and tape.lse.
void attend(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
            const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
            const GqaTape& tape);
// o[t,H] from tape.attention.
void project_out(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
                 const Batch& batch, const GqaTape& tape, Tensor o);

// Writes dnormed[t,H]. Gradients of matrices are added to if `accumulate`, and overwritten
// otherwise; gradients of vectors are always added to. dout[t,H] is the gradient of o; normed[t,H]
// is the block's input. Calls `attention_next` one product before attention's own backward.
void backward(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
              const GqaParameters<Tensor>& g, const ops::RotaryTable& rotary, const Batch& batch,
              const GqaTape& tape, Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next);

}  // namespace slimexx::model
