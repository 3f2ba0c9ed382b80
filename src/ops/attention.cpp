#include "slimexx/ops/attention.h"

#include "ops/attention_checks.h"
#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_selected(const char* op, const AttentionLayout& layout, const Context& ctx,
                    int64_t num_tokens) {
  if (!layout.selected.defined()) return;
  check_i32(op, "selected", ctx, layout.selected, {num_tokens, kAny});
  SLX_CHECK_GT(layout.selected.dim(1), 0);
}

void check_device_lengths(const char* op, const AttentionLayout& layout, const Context& ctx) {
  check_i32(op, "device_cu_seqlens", ctx, layout.device_cu_seqlens, {kAny});
  if (layout.page_table.defined())
    check_i32(op, "device_context_lens", ctx, layout.device_context_lens,
              {layout.device_cu_seqlens.dim(0) - 1});
}

// Starts ascend from 0, and no sequence sees keys beyond the next different start.
void check_key_starts(const char* op, const AttentionLayout& layout, const Context& ctx) {
  const auto& starts = layout.key_starts;
  SLX_CHECK(ctx.device().is_cpu() || ctx.planning(),
            "{}: gathered keys are supported on the CPU only", op);
  SLX_CHECK(!layout.page_table.defined() && starts.size() + 1 == layout.cu_seqlens.size() &&
                starts[0] == 0,
            "{}: gathered keys need starts from 0, one per sequence, and no pages; there are {} "
            "starts for {} sequences",
            op, starts.size(), layout.cu_seqlens.size() - 1);
  int64_t end = layout.num_keys;  // end of the keys of sequence b
  for (size_t b = starts.size(); b-- > 0;) {
    if (b + 1 < starts.size() && starts[b] != starts[b + 1]) end = starts[b + 1];
    const int64_t keys = layout.context_len(b) + layout.cu_seqlens[b + 1] - layout.cu_seqlens[b];
    SLX_CHECK(starts[b] + keys <= end, "{}: keys [{}, {}) of sequence {} exceed the end {}", op,
              starts[b], starts[b] + keys, b, end);
  }
}

}  // namespace

void check_layout(const char* op, const AttentionLayout& layout, const Context& ctx,
                  int64_t num_tokens) {
  const auto& cu = layout.cu_seqlens;
  check_selected(op, layout, ctx, num_tokens);
  if (!ctx.device().is_cpu()) {
    check_device_lengths(op, layout, ctx);
    if (cu.empty() && layout.max_query_len > 0 && layout.max_key_len > 0) return;
  }
  SLX_CHECK(!cu.empty() && cu.front() == 0 && cu.back() == num_tokens,
            "{}: cu_seqlens must run from 0 to {}", op, num_tokens);
  const auto num_sequences = static_cast<int64_t>(cu.size()) - 1;
  const bool paged = layout.page_table.defined(), gathered = !layout.key_starts.empty();
  SLX_CHECK(layout.context_lens.empty() ||
                static_cast<int64_t>(layout.context_lens.size()) == num_sequences,
            "{}: {} context lengths for {} sequences", op, layout.context_lens.size(),
            num_sequences);
  if (paged) {
    check_i32(op, "page_table", ctx, layout.page_table, {num_sequences, kAny});
    SLX_CHECK_GT(layout.page_tokens, 0);
  }
  for (size_t b = 0; b + 1 < cu.size(); ++b) {
    const int64_t context = layout.context_len(b);
    SLX_CHECK(cu[b] <= cu[b + 1], "{}: cu_seqlens descends at {}", op, b);
    SLX_CHECK(
        context >= 0 && (paged || gathered || context == 0),
        "{}: context length {} of sequence {} is negative, or given without pages or gathered keys",
        op, context, b);
    const int64_t keys = context + cu[b + 1] - cu[b];
    if (paged && cu[b + 1] > cu[b])
      SLX_CHECK_LE(keys, layout.page_table.dim(1) * layout.page_tokens);
  }
  if (gathered) check_key_starts(op, layout, ctx);
}

void check_pages(const char* op, const char* name, const Context& ctx, const CacheRows& pages,
                 std::initializer_list<int64_t> shape) {
  if (!pages.is_fp8()) return check_compute(op, name, ctx, pages.rows, shape, Strides::kRows);
  const Tensor& rows = pages.rows;
  check_operand(op, name, ctx, rows, tensor::DType::kF8E4M3, shape);
  check_operand(op, name, ctx, pages.scales, tensor::DType::kBF16,
                {rows.dim(0), rows.dim(2), rows.dim(1)});
}

void check_latent_pages(const char* op, const Context& ctx, const Tensor& pages, int64_t rank,
                        int64_t rotary_width) {
  if (!pages.defined()) return;
  const tensor::F8LatentRow form = tensor::latent_f8_row(
      rank, rotary_width, tensor::dtype_bytes(tensor::compute_dtype(ctx.device())));
  check_operand(op, "pages", ctx, pages, tensor::DType::kU8, {kAny, kAny, 1, form.bytes});
}

namespace {

// `value_dim` of a query's q.dim(2) elements are the rank of latent attention.
void check_keys(const char* op, const Context& ctx, const Tensor& q, const CacheRows& k,
                const CacheRows& v, const AttentionLayout& layout, int64_t value_dim) {
  if (k.is_latent_fp8()) {
    SLX_CHECK(layout.page_table.defined() && k.rows.raw() == v.rows.raw());
    check_latent_pages(op, ctx, k.rows, value_dim, q.dim(2) - value_dim);
    SLX_CHECK_EQ(k.rows.dim(1), layout.page_tokens);
  } else if (layout.page_table.defined()) {
    SLX_CHECK_EQ(k.is_fp8(), v.is_fp8());
    check_pages(op, "k", ctx, k, {kAny, layout.page_tokens, kAny, q.dim(2)});
    check_pages(op, "v", ctx, v, {k.rows.dim(0), layout.page_tokens, k.rows.dim(2), kAny});
  } else {
    const int64_t num_keys = layout.key_starts.empty() ? q.dim(0) : layout.num_keys;
    check_compute(op, "k", ctx, k.rows, {num_keys, kAny, q.dim(2)}, Strides::kRows);
    check_compute(op, "v", ctx, v.rows, {num_keys, k.rows.dim(1), kAny}, Strides::kRows);
  }
  const int64_t kv_heads = k.rows.dim(-2);
  SLX_CHECK(kv_heads > 0 && q.dim(1) % kv_heads == 0,
            "{}: {} query heads are not a multiple of {} key heads", op, q.dim(1), kv_heads);
}

}  // namespace

void attention_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, const CacheRows& k,
                       const CacheRows& v, const AttentionLayout& layout, float scale) {
  constexpr const char* kOp = "attention_forward";
  check_compute(kOp, "q", ctx, q, {kAny, kAny, kAny}, Strides::kRows);
  check_compute(kOp, "out", ctx, out, {q.dim(0), q.dim(1), kAny}, Strides::kRows);
  SLX_CHECK(out.dim(2) == q.dim(2) ||
                (out.dim(2) < q.dim(2) &&
                 (ctx.device().is_cpu() || (k.rows.raw() == v.rows.raw() && k.rows.dim(-2) == 1))),
            "{}: values of {} elements are not supported with keys of {}", kOp, out.dim(2),
            q.dim(2));
  if (lse.defined()) check_f32(kOp, "lse", ctx, lse, {q.dim(0), q.dim(1)});
  check_layout(kOp, layout, ctx, q.dim(0));
  check_keys(kOp, ctx, q, k, v, layout, out.dim(2));
  SLX_CHECK_GE(v.rows.dim(-1), out.dim(2));
  SLX_CHECK_GT(scale, 0.0f);
  if (q.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::attention_forward(out, lse, q, k, v, layout, scale);
  SLX_LAUNCH_SCRATCH(attention_forward(ctx, out, lse, q, k, v, layout, scale));
}

void attention_backward(const Context& ctx, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale) {
  constexpr const char* kOp = "attention_backward";
  SLX_CHECK(!layout.page_table.defined(), "attention_backward: pages are not supported");
  check_compute(kOp, "q", ctx, q, {kAny, kAny, kAny}, Strides::kRows);
  check_layout(kOp, layout, ctx, q.dim(0));
  check_keys(kOp, ctx, q, k, v, layout, v.dim(-1));
  for (const auto& [name, x] : {std::pair{"out", &out}, {"dout", &dout}})
    check_compute(kOp, name, ctx, *x, {q.dim(0), q.dim(1), v.dim(2)}, Strides::kRows);
  SLX_CHECK_LE(v.dim(2), q.dim(2));
  if (layout.query_spans.defined())
    check_i32(kOp, "query_spans", ctx, layout.query_spans,
              {static_cast<int64_t>(layout.cu_seqlens.size()) - 1, 4});
  SLX_CHECK(!layout.selected.defined() || ctx.device().is_cpu() || k.dim(1) == q.dim(1),
            "{}: selected keys need one key head per query head", kOp);
  check_compute(kOp, "dq", ctx, dq, {q.dim(0), q.dim(1), q.dim(2)}, Strides::kRows);
  check_compute(kOp, "dk", ctx, dk, {k.dim(0), k.dim(1), k.dim(2)}, Strides::kRows);
  check_compute(kOp, "dv", ctx, dv, {k.dim(0), k.dim(1), v.dim(2)}, Strides::kRows);
  check_f32(kOp, "lse", ctx, lse, {q.dim(0), q.dim(1)});
  SLX_CHECK_GT(scale, 0.0f);
  if (q.dim(0) == 0 && k.dim(0) == 0) return;
  if (runs_on_cpu(ctx))
    return cpu::attention_backward(dq, dk, dv, dout, q, k, v, out, lse, layout, scale);
  SLX_LAUNCH_SCRATCH(attention_backward(ctx, dq, dk, dv, dout, q, k, v, out, lse, layout, scale));
}

void write_kv_pages(const Context& ctx, Tensor k_pages, Tensor v_pages, Tensor k, Tensor v,
                    Tensor slots) {
  constexpr const char* kOp = "write_kv_pages";
  check_compute(kOp, "k", ctx, k, {kAny, kAny, kAny}, Strides::kRows);
  if (v_pages.defined())
    check_compute(kOp, "v", ctx, v, {k.dim(0), k.dim(1), k.dim(2)}, Strides::kRows);
  check_compute(kOp, "k_pages", ctx, k_pages, {kAny, kAny, k.dim(1), k.dim(2)}, Strides::kRows);
  if (v_pages.defined())
    check_compute(kOp, "v_pages", ctx, v_pages,
                  {k_pages.dim(0), k_pages.dim(1), k.dim(1), k.dim(2)}, Strides::kRows);
  check_i32(kOp, "slots", ctx, slots, {k.dim(0)});
  if (k.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::write_kv_pages(k_pages, v_pages, k, v, slots);
  if (v_pages.defined()) SLX_LAUNCH(missing(kOp));
  SLX_LAUNCH(write_kv_pages(ctx, k_pages, k, slots));
}

}  // namespace slimexx::ops
