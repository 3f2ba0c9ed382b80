// Kernels for rows of bf16 activations: norms, rotary, SwiGLU, gathers, element-wise operations.
// Pointers are device pointers; strides and sizes count elements. Nothing is allocated, nothing
// synchronises. Arithmetic is fp32, and each stored value is rounded once (to nearest even). The
// order of operations is fixed, and a row's bits depend only on that row (N1, N4).
//
// Every function queues its kernel on `stream` and returns cudaGetLastError(), or
// cudaErrorInvalidValue for a size or alignment that it does not support (limits are given at each
// function). With zero rows it does nothing. Loads are vectorised if buffers are 16-byte aligned
// and widths and strides are multiples of 8; otherwise a kernel is slower, with the same bits. All
// use programmatic dependent launch: a kernel may start before the previous kernel of the stream
// has ended, but accesses memory only after all earlier kernels are complete.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels {

// y = w * (x * rsqrt(mean(x^2) + eps)). x, y [rows, width] bf16 with row strides; w [width] bf16.
// y may be x. Widths of all norms: 1 to 16384.
cudaError_t rms_norm_forward(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                             const void* w, int64_t rows, int64_t width, float eps,
                             cudaStream_t stream);

// y = w * ((x - mean) * rsqrt(mean((x - mean)^2) + eps)) + b, otherwise like rms_norm_forward.
cudaError_t layer_norm_forward(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                               const void* w, const void* b, int64_t rows, int64_t width, float eps,
                               cudaStream_t stream);

// x_sum = x + branch, or x + branch_norm * normalised(branch) if branch_norm [width] is not null;
// rounded to bf16. If y and w are not null (both or neither), y =
// rms_norm_forward(x_sum), with the same bits. All [rows, width] bf16, contiguous; x_sum may be x
// or branch.
cudaError_t add_rms_norm_forward(void* y, void* x_sum, const void* x, const void* branch,
                                 const void* branch_norm, const void* w, int64_t rows,
                                 int64_t width, float eps, cudaStream_t stream);

// dx (+)= gradient with respect to x of rms_norm_forward; dw[width] f32 += gradient with respect to
// w, summed over rows in a fixed order: the same bits every run. Row statistics are recomputed from
// x. Without `accumulate` dx may be dy. Strides are from row to row. `workspace`:
// rms_norm_backward_workspace() bytes; all workspaces of this header are 16-byte aligned.
size_t rms_norm_backward_workspace(int64_t rows, int64_t width);
cudaError_t rms_norm_backward(void* dx, int64_t dx_stride, float* dw, const void* dy,
                              int64_t dy_stride, const void* x, int64_t x_stride, const void* w,
                              int64_t rows, int64_t width, float eps, bool accumulate,
                              void* workspace, cudaStream_t stream);

// The output of the QKV projection: [tokens, (query_heads + 2 kv_heads) * head_dim] bf16, rows
// contiguous; queries, then keys, then values.
struct QkvShape {
  int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
};
struct RotaryTables {
  const float* cos = nullptr;  // [positions, rotary_dim / 2]
  const float* sin = nullptr;
  const int32_t* positions = nullptr;  // [tokens]
  int64_t rotary_dim = 0;              // the first rotary_dim elements of a head are rotated
  bool interleaved = false;            // true: pairs (2i, 2i+1); false: (i, i + rotary_dim/2)
};
struct KvPages {
  void* k =
      nullptr;  // [pages * page_tokens, kv_heads, head_dim] bf16 (round_f8: e4m3); null: no pages
  void* v = nullptr;
  const int32_t* slots = nullptr;  // [tokens], page * page_tokens + offset; below 0: not written
  // Keys and values are quantised to e4m3, with one scale for each token and head
  // (tensor::f8_key_scale). Pages hold the e4m3 values and the scales. Without pages, keys and
  // values become the dequantised values, RN_bf16(e4m3 * scale). NaN or infinity in a head makes
  // its scale NaN.
  bool round_f8 = false;
  void* k_scales = nullptr;  // FP8 pages: [pages, kv_heads, page_tokens] bf16
  void* v_scales = nullptr;
  int64_t page_tokens = 0;  // FP8 pages: a power of two
};
// RMSNorm of each query and key head (q_norm, k_norm [head_dim]; null: none), then rotary, rounded
// once. Rows of `out` have `out_heads` heads: query_heads + 2 kv_heads, or query_heads + kv_heads
// to leave out the values. With pages, keys and values are written to their slots and only queries
// to `out`. Without pages all heads of `out` are written; values, if it has them, are copied. `out`
// may be `in` if it has values. `in` is written only if it is `out`, or with round_f8, without
// pages and without values in `out`: then the values in `in` become the dequantised values.
// head_dim <= 256, even. Positions must be rows of the tables; the kernel does not check them.
cudaError_t qk_norm_rotary_forward(void* out, int64_t out_heads, void* in, const void* q_norm,
                                   const void* k_norm, float eps, const RotaryTables& rotary,
                                   const KvPages& pages, const QkvShape& shape,
                                   cudaStream_t stream);
// In place: d [tokens, ...] holds the gradient with respect to the forward's outputs, and receives
// the gradient with respect to its inputs; values are not changed. Adds to dq_norm and dk_norm
// [head_dim] f32 in a fixed order. `raw` is the forward's `in`; `raw` and the norms are null if
// there is no norm.
size_t qk_norm_rotary_backward_workspace(const QkvShape& shape);
cudaError_t qk_norm_rotary_backward(void* d, float* dq_norm, float* dk_norm, const void* raw,
                                    const void* q_norm, const void* k_norm, float eps,
                                    const RotaryTables& rotary, const QkvShape& shape,
                                    void* workspace, cudaStream_t stream);

// Some columns of each head: `data` points to the columns of token 0, head 0.
struct HeadRows {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;  // head_stride 0: all heads share one row
};
// The next three functions need widths, strides and alignments that are multiples of 8 elements.
// y[token, head, 0..width) = x
cudaError_t copy_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                              int64_t width, cudaStream_t stream);
// y[token, 0..width) = sum of x over heads, ascending
cudaError_t sum_head_columns(void* y, int64_t y_stride, const HeadRows& x, int64_t tokens,
                             int64_t heads, int64_t width, cudaStream_t stream);
// pages[slots[i]] = x[i], for pages [.., width] and x [rows, width]; a slot below 0 is skipped.
cudaError_t put_rows_in_pages(void* pages, const void* x, int64_t x_stride, const int32_t* slots,
                              int64_t rows, int64_t width, cudaStream_t stream);
// y[token, head, 0..width) = x, with the first rotary_dim columns rotated, with the bits of
// qk_norm_rotary_forward. `inverse`: by the negative angle. Even widths, any alignment; y may be x.
cudaError_t rotate_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                                int64_t width, const RotaryTables& tables, bool inverse,
                                cudaStream_t stream);

// The key rows of latent attention, x and y [tokens, rank + rotary_width]. The first `rank`
// elements of y are the RMSNorm of the first `rank` elements of x, with the bits of
// rms_norm_forward; the others are rotated. With pages, row i is also written to pages[slots[i]]; a
// slot below 0 is skipped. Sizes are multiples of 8, rank <= 1792, rotary_width <= 64; rows are
// 16-byte aligned.
struct LatentRows {
  void* y = nullptr;
  const void* x = nullptr;
  const void* norm = nullptr;  // [rank]
  void* pages = nullptr;       // [.., rank + rotary_width]; null: none
  const int32_t* slots = nullptr;
  int64_t y_stride = 0, x_stride = 0;
  int64_t tokens = 0, rank = 0, rotary_width = 0;
  // Rounds the first `rank` elements of y through FP8: they become the values that an FP8 cache
  // returns. Then pages have rows of tensor::latent_f8_row_bytes(rank, rotary_width) bytes.
  bool round_f8 = false;
  // If query_rank > 0 (at most 2048): query_y [tokens, query_rank] = RMSNorm of query_x with
  // weights query_norm [query_rank].
  void* query_y = nullptr;
  const void* query_x = nullptr;
  const void* query_norm = nullptr;
  int64_t query_y_stride = 0, query_x_stride = 0;
  int64_t query_rank = 0;
};
// Whether latent_rows_forward can also normalise queries of this rank.
inline bool norms_latent_queries(int64_t query_rank) {
  return query_rank % 8 == 0 && query_rank <= 2048;
}
cudaError_t latent_rows_forward(const LatentRows& rows, const RotaryTables& tables, float eps,
                                cudaStream_t stream);

// Where rounded rows are also stored as FP8: row i in slot slots[i]; a slot below 0 is skipped.
struct F8Pages {
  void* rows = nullptr;    // rows of bytes; null: no pages
  void* scales = nullptr;  // [slots] bf16; null where the rows of bytes have the scales
  const int32_t* slots = nullptr;
};
// In place over normed and rotated latent rows [tokens, rank + rotary_width]: does what round_f8
// does in latent_rows_forward, with the same bits. For rows that come from other ranks.
cudaError_t round_latent_rows(void* y, int64_t y_stride, int64_t tokens, int64_t rank,
                              int64_t rotary_width, const F8Pages& pages, cudaStream_t stream);
// In place over index keys [tokens, head_dim] bf16: rounds each key through FP8 with one scale for
// the whole key (tensor::f8_key_scale). With pages, bytes [.., head_dim] and scales are stored.
// head_dim is a multiple of 8, at most kMostIndexHeadDim (limits.h); rows are 16-byte aligned.
cudaError_t round_index_keys(void* keys, int64_t stride, int64_t tokens, int64_t head_dim,
                             const F8Pages& pages, cudaStream_t stream);

// h[rows, width] = silu(gate) * up; gate_up [rows, 2 width] is gate then up. All bf16, contiguous.
// dgate_up may be gate_up. The backward also recomputes h if h is not null; h may be dh.
cudaError_t swiglu_forward(void* h, const void* gate_up, int64_t rows, int64_t width,
                           cudaStream_t stream);
cudaError_t swiglu_backward(void* dgate_up, void* h, const void* dh, const void* gate_up,
                            int64_t rows, int64_t width, cudaStream_t stream);

// y[i] = x[rows[i]], [count, width] bf16 with row strides. An embedding is a gather of its table.
cudaError_t gather_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                        const int32_t* rows, int64_t count, int64_t width, cudaStream_t stream);
// y[i] = x[i], elements of two bytes.
cudaError_t copy_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride, int64_t count,
                      int64_t width, cudaStream_t stream);
// y[i] = shard[tokens[i] - vocabulary.first], or zeros if the token is not in this shard.
struct VocabularyShard {
  int64_t first = 0, rows = 0;
};
cudaError_t embedding_shard(void* y, int64_t y_stride, const void* shard, int64_t shard_stride,
                            const VocabularyShard& vocabulary, const int32_t* tokens, int64_t count,
                            int64_t width, cudaStream_t stream);
// dx[rows[i]] += dy[i], bf16; rows are distinct.
cudaError_t scatter_add_rows(void* dx, int64_t dx_stride, const void* dy, int64_t dy_stride,
                             const int32_t* rows, int64_t count, int64_t width,
                             cudaStream_t stream);
// dtable[tokens[i]] += dy[i]: dtable [vocabulary, width] f32, dy [count, width] bf16; the rows of
// one token are added in ascending i (the same bits every run). A workspace for a larger count is
// also enough for a smaller one.
size_t embedding_backward_workspace(int64_t count, int64_t vocabulary);
cudaError_t embedding_backward(float* dtable, const void* dy, const int32_t* tokens, int64_t count,
                               int64_t width, int64_t vocabulary, void* workspace,
                               cudaStream_t stream);

enum class Element : uint8_t { kF32, kBF16 };
// y = a + b; y += factor * x; y *= factor. n elements of one type; y may be a or b. In f32 the
// product is rounded before the sum, as on the CPU.
cudaError_t add(void* y, const void* a, const void* b, Element type, int64_t n,
                cudaStream_t stream);
cudaError_t add_scaled(void* y, const void* x, float factor, Element type, int64_t n,
                       cudaStream_t stream);
cudaError_t scale(void* y, float factor, Element type, int64_t n, cudaStream_t stream);
// Converts n elements (to bf16: to nearest even).
cudaError_t convert(void* y, Element y_type, const void* x, Element x_type, int64_t n,
                    cudaStream_t stream);
// dbias[n] f32 += column sums of dy [rows, n] bf16 with row stride, in a fixed order.
size_t column_sums_workspace(int64_t rows, int64_t n);
cudaError_t column_sums(float* dbias, const void* dy, int64_t dy_stride, int64_t rows, int64_t n,
                        void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels
