#include "slimexx/model/blocks/sparse_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/blocks/key_pages.h"
#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::model {
namespace {

// Queries scored at a time. A constant, because memory must depend on shapes only and a plan for
// the largest batch must hold for all batches. On a GPU products of more rows are faster, and 256
// rows of 32,768 scores still fit in L2.
int64_t scored_rows(tensor::Device device) { return device.is_cpu() ? 128 : 256; }

float root_of(int64_t n) { return 1 / std::sqrt(static_cast<float>(n)); }

// Rotates the first elements of each head; their number is the layer's rotary dimension.
void rotate(const ops::Context& ctx, Tensor heads, const ops::RotaryTable& rotary,
            Tensor positions) {
  ops::rotary(ctx, heads, rotary.cos, rotary.sin, positions, ops::RotaryStyle::kInterleaved, false);
}

Tensor allocate_rows(const ops::Context& ctx, int64_t num_rows, int64_t width) {
  return ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {num_rows, width});
}

// The index keys of this rank's rows, [t,1,D].
Tensor make_keys(const ops::Context& ctx, const IndexerSpec& s, const IndexerParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, Tensor normed) {
  const Tensor k = allocate_rows(ctx, normed.dim(0), s.head_dim);
  const Tensor heads = k.split_last({1, s.head_dim});
  ops::matmul_forward(ctx, k, normed, {w.k_weight});
  ops::layer_norm_forward(ctx, k, k, w.k_norm, w.k_norm_bias, static_cast<float>(s.norm_eps));
  rotate(ctx, heads, rotary, own_rows_of(ctx, batch, batch.positions));
  return heads;
}

ParameterInfo frozen(const std::string& name, const std::string& hf_name,
                     std::vector<int64_t> shape) {
  return {.name = name,
          .shape = shape,
          .decayed = false,
          .trainable = false,
          .parts = {{.name = hf_name, .shape = shape}}};
}

}  // namespace

IndexerParameters<ParameterId> no_indexer() {
  return {kNoParameter, kNoParameter, kNoParameter, kNoParameter, kNoParameter};
}

IndexerParameters<ParameterId> declare_indexer(ParameterList& list, const IndexerSpec& s,
                                               const std::string& own, const std::string& hf) {
  const auto add = [&](const char* name, const char* hf_name, std::vector<int64_t> shape,
                       InitKind init = InitKind::kNormal) {
    ParameterInfo info = frozen(own + name, hf + hf_name, std::move(shape));
    info.init = init;
    return list.add(std::move(info));
  };
  IndexerParameters<ParameterId> p;
  p.q_weight = add("q.weight", "wq_b.weight", {s.num_heads * s.head_dim, s.q_rank});
  p.k_weight = add("k.weight", "wk.weight", {s.head_dim, s.hidden_size});
  p.k_norm = add("k_norm.weight", "k_norm.weight", {s.head_dim}, InitKind::kOnes);
  p.k_norm_bias = add("k_norm.bias", "k_norm.bias", {s.head_dim}, InitKind::kZeros);
  p.head_weight = add("heads.weight", "weights_proj.weight", {s.num_heads, s.hidden_size});
  return p;
}

double forward_flops(const IndexerSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), width = static_cast<double>(s.head_dim);
  const auto heads = static_cast<double>(s.num_heads), h = static_cast<double>(s.hidden_size);
  const double weights = static_cast<double>(s.q_rank) * heads * width + h * (width + heads);
  return 2 * n * weights + n * n * heads * width;  // scores, halved by causality
}

void check_device_sizes(const IndexerSpec& s, tensor::Device device) {
  if (device.is_cpu()) return;
  const auto refuse = [device](const char* key, int64_t size, const std::string& served) {
    throw Error(ErrorCode::kInput,
                fmt::format("{} is {}: indexers support {} on {}", key, size, served,
                            tensor::to_string(device)),
                "use --device cpu", key);
  };
  if (s.num_heads > ops::kMostIndexHeads)
    refuse("index_n_heads", s.num_heads, fmt::format("up to {}", ops::kMostIndexHeads));
  if (s.head_dim % 8 != 0 || s.head_dim > ops::kMostIndexHeadDim)
    refuse("index_head_dim", s.head_dim,
           fmt::format("multiples of 8 up to {}", ops::kMostIndexHeadDim));
  if (s.fp8_cache && s.head_dim % 16 != 0)
    refuse("index_head_dim", s.head_dim, "multiples of 16 with an FP8 KV cache");
}

int64_t page_bytes(const IndexerSpec& spec, DType dtype, int64_t page_tokens) {
  return page_tokens * key_bytes(spec.fp8_cache, 1, spec.head_dim, dtype);
}

ops::CacheRows make_pages(const IndexerSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                          int64_t page_tokens) {
  return make_key_pages(spec.fp8_cache, dtype, memory, {num_pages, page_tokens, 1, spec.head_dim});
}

void select_keys(const ops::Context& ctx, const IndexerSpec& s, const IndexerParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch,
                 const ops::CacheRows& index_pages, Tensor q_normed, Tensor normed,
                 Tensor selected) {
  const tensor::ArenaScope scope(ctx.arena);
  const dist::Range own = own_rows(batch, ctx.groups);
  const Tensor positions = own_rows_of(ctx, batch, batch.positions);
  const Tensor own_selected = own_rows_of(ctx, batch, selected);
  const Tensor own_keys = make_keys(ctx, s, w, rotary, batch, normed);
  const Tensor batch_keys = gather_tp_rows(ctx, batch, own_keys.reshaped({own.size(), s.head_dim}))
                                .split_last({1, s.head_dim});
  if (s.fp8_cache) ops::round_keys(ctx, batch_keys, index_pages, batch.slots);
  ops::CacheRows keys = batch_keys;
  if (index_pages.defined()) {
    if (!s.fp8_cache) ops::write_kv_pages(ctx, index_pages.rows, {}, batch_keys, {}, batch.slots);
    keys = index_pages;
  } else if (batch.context.is_sharded()) {
    const Tensor rows = batch_keys.reshaped({batch_keys.dim(0), s.head_dim});
    keys = (batch.context.page_rows.defined() ? gather_context_pages(ctx, batch.context, rows)
                                              : gather_context(ctx, batch.context, {rows}))
               .split_last({1, s.head_dim});
  }
  const int64_t columns =
      std::max<int64_t>(1, ops::max_sequence_keys(batch.attention, selected.dim(0)));
  const int64_t most = scored_rows(ctx.device());
  for (int64_t first = 0; first < own.size(); first += most) {
    const tensor::ArenaScope rows_scope(ctx.arena);
    const int64_t end = std::min(own.size(), first + most), n = end - first;
    const Tensor q = allocate_rows(ctx, n, s.num_heads * s.head_dim);
    const Tensor heads = q.split_last({s.num_heads, s.head_dim});
    ops::matmul_forward(ctx, q, q_normed.rows(first, end), {w.q_weight});
    rotate(ctx, heads, rotary, positions.rows(first, end));
    const Tensor weights = ctx.arena.allocate(DType::kF32, {n, s.num_heads});
    ops::matmul_forward(ctx, weights, normed.rows(first, end), {w.head_weight});
    ops::scale(ctx, weights, root_of(s.num_heads));
    const Tensor scores = ctx.arena.allocate(DType::kF32, {n, columns});
    ops::index_scores(ctx, scores, heads, weights, keys, batch.attention, own.begin + first,
                      selected.dim(1), root_of(s.head_dim));
    ops::select_keys(ctx, own_selected.rows(first, end), scores, batch.attention,
                     own.begin + first);
  }
  exchange_tp_rows(ctx, batch, selected);
}

}  // namespace slimexx::model
