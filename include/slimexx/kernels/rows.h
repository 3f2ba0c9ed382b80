// Kernels that work on rows of bf16 activations: norms, rotation, SwiGLU, gathers, element-wise.
// Pointers are device pointers; strides and sizes count elements. Nothing is allocated, nothing
// synchronises. Arithmetic is fp32 and each value that is stored is rounded once (to nearest even);
// a row's bits depend on that row only, by one fixed order of operations (N1, N4).
//
// Every function queues its kernel on `stream` and returns cudaGetLastError(), or
// cudaErrorInvalidValue for a size or alignment that it does not serve (said at each). Zero rows
// are served by doing nothing. Buffers start at 16 bytes, and where a width is a multiple of 8 and
// so are the strides, the vectorised path runs; other widths and alignments are served too, slower,
// with the same bits. A launch overlaps the end of the kernel before it on the stream, and lets the
// next one do so, but reads and writes nothing before all earlier kernels are complete.
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

// y = w * ((x - mean) * rsqrt(mean((x - mean)^2) + eps)) + b, otherwise the same.
cudaError_t layer_norm_forward(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                               const void* w, const void* b, int64_t rows, int64_t width, float eps,
                               cudaStream_t stream);

// x_sum = x + branch, or x + branch_norm * normalised(branch) where branch_norm [width] is given;
// rounded to bf16; y = w * normalised(x_sum), taken from the rounded x_sum, where y and w are given
// (both or neither). All [rows, width] bf16, contiguous; x_sum may be x or branch. y has the bits
// of rms_norm_forward(x_sum).
cudaError_t add_rms_norm_forward(void* y, void* x_sum, const void* x, const void* branch,
                                 const void* branch_norm, const void* w, int64_t rows,
                                 int64_t width, float eps, cudaStream_t stream);

// dx (+)= gradient by x of rms_norm_forward; dw[width] f32 += its gradient by w, summed over rows
// in a fixed order (no atomics on values: the same bits every run). Statistics are computed again
// from x. Without `accumulate` dx may be dy. Strides are from row to row. `workspace`:
// rms_norm_backward_workspace() bytes; it starts at 16 bytes, as every workspace does.
size_t rms_norm_backward_workspace(int64_t rows, int64_t width);
cudaError_t rms_norm_backward(void* dx, int64_t dx_stride, float* dw, const void* dy,
                              int64_t dy_stride, const void* x, int64_t x_stride, const void* w,
                              int64_t rows, int64_t width, float eps, bool accumulate,
                              void* workspace, cudaStream_t stream);

// Queries, keys and values of a token as the projection writes them: [tokens, (query_heads +
// 2 kv_heads) * head_dim] bf16, rows contiguous.
struct QkvShape {
  int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
};
struct RotaryTables {
  const float* cos = nullptr;  // [positions, rotary_dim / 2]
  const float* sin = nullptr;
  const int32_t* positions = nullptr;  // [tokens]
  int64_t rotary_dim = 0;              // the first rotary_dim of head_dim turn
  bool interleaved = false;            // pairs (2i, 2i+1); else (i, i + rotary_dim/2)
};
struct KvPages {
  void* k = nullptr;  // [pages * page_tokens, kv_heads, head_dim] bf16; null: no pages
  void* v = nullptr;
  const int32_t* slots = nullptr;  // [tokens], page * page_tokens + offset; below 0: not written
};
// RMSNorm of each query and key head (q_norm, k_norm [head_dim]; null: none), then the rotation,
// rounded once. Rows of `out` have `out_heads` heads: query_heads + 2 kv_heads, or query_heads +
// kv_heads where it takes no values. With pages, keys and values go to their slots and only queries
// to `out`; without, all of `out` is written, values copied if it takes them. `out` may be `in`,
// with values. head_dim <= 256, even. Positions must be rows of the tables: the device does not
// check them.
cudaError_t qk_norm_rotary_forward(void* out, int64_t out_heads, const void* in, const void* q_norm,
                                   const void* k_norm, float eps, const RotaryTables& rotary,
                                   const KvPages& pages, const QkvShape& shape,
                                   cudaStream_t stream);
// In place over d [tokens, ...]: the gradient by the normed and rotated queries and keys becomes
// that by the raw ones; values pass. dq_norm, dk_norm [head_dim] f32 are added to in a fixed order.
// `raw` is the forward's `in`; it and the norms are null where there is no norm.
size_t qk_norm_rotary_backward_workspace(const QkvShape& shape);
cudaError_t qk_norm_rotary_backward(void* d, float* dq_norm, float* dk_norm, const void* raw,
                                    const void* q_norm, const void* k_norm, float eps,
                                    const RotaryTables& rotary, const QkvShape& shape,
                                    void* workspace, cudaStream_t stream);

// Parts of heads: `data` points at the first head's part of token 0.
struct HeadRows {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;  // a head_stride of 0: one head for all
};
// These take strides, widths and alignments of 8 elements only.
// y[token, head, 0..width) = x
cudaError_t copy_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                              int64_t width, cudaStream_t stream);
// y[token, 0..width) = sum of x over heads, ascending
cudaError_t sum_head_columns(void* y, int64_t y_stride, const HeadRows& x, int64_t tokens,
                             int64_t heads, int64_t width, cudaStream_t stream);
// Row slots[i] of pages [.., width] = row i of x [rows, width]; a slot below 0: nowhere.
cudaError_t put_rows_in_pages(void* pages, const void* x, int64_t x_stride, const int32_t* slots,
                              int64_t rows, int64_t width, cudaStream_t stream);
// y[token, head, 0..width) = x, the first rotary_dim of them rotated, with the bits of
// qk_norm_rotary_forward; `inverse`: by the negative angle. Even widths, any alignment; y may be x.
cudaError_t rotate_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                                int64_t width, const RotaryTables& tables, bool inverse,
                                cudaStream_t stream);

// The rows of latent attention [tokens, rank + rotary_width]: y is the RMSNorm of x's first `rank`
// elements, with the bits of rms_norm_forward, then the others rotated. With pages, row i goes to
// row slots[i] of them too; a slot below 0: nowhere. Multiples of 8, rank <= 1792, rotary_width <=
// 64; 16-byte rows.
struct LatentRows {
  void* y = nullptr;
  const void* x = nullptr;
  const void* norm = nullptr;  // [rank]
  void* pages = nullptr;       // [.., rank + rotary_width]; null: none
  const int32_t* slots = nullptr;
  int64_t y_stride = 0, x_stride = 0;
  int64_t tokens = 0, rank = 0, rotary_width = 0;
  // With a query_rank, up to 2048: rows [tokens, query_rank] that are normed too, by
  // query_norm [query_rank].
  void* query_y = nullptr;
  const void* query_x = nullptr;
  const void* query_norm = nullptr;
  int64_t query_y_stride = 0, query_x_stride = 0;
  int64_t query_rank = 0;
};
// Whether one kernel norms rows of this width beside the latent ones.
inline bool norms_latent_queries(int64_t query_rank) {
  return query_rank % 8 == 0 && query_rank <= 2048;
}
cudaError_t latent_rows_forward(const LatentRows& rows, const RotaryTables& tables, float eps,
                                cudaStream_t stream);

// h[rows, width] = silu(gate) * up; gate_up [rows, 2 width] is gate then up. All bf16, contiguous.
// dgate_up may be gate_up. The backward writes h too where h is given; it may be dh.
cudaError_t swiglu_forward(void* h, const void* gate_up, int64_t rows, int64_t width,
                           cudaStream_t stream);
cudaError_t swiglu_backward(void* dgate_up, void* h, const void* dh, const void* gate_up,
                            int64_t rows, int64_t width, cudaStream_t stream);

// y[i] = x[rows[i]], [count, width] bf16 with row strides. An embedding is a gather of its table.
cudaError_t gather_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                        const int32_t* rows, int64_t count, int64_t width, cudaStream_t stream);
// y[i] = x[i], of elements of two bytes.
cudaError_t copy_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride, int64_t count,
                      int64_t width, cudaStream_t stream);
// y[i] = shard[tokens[i] - vocabulary.first], and zeros where that is none of vocabulary.rows rows.
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
// one token are added in ascending i (the same bits every run). A workspace for a
// larger count serves a smaller one.
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
