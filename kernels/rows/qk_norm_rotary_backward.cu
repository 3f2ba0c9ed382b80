// Gradient of head norms and rotation, in place. With g the gradient turned back, x the raw head,
// r = 1 / rms(x) and m = mean(g w x r): dx = r (g w - x r m), dw += g x r.
// A thread block walks one part of the tokens, head after head over its groups of lanes; each lane
// keeps its elements' share of both weight gradients.
#include "kernels/rows/head_lanes.cuh"
#include "kernels/rows/partial_sums.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kMaxParts = 528;
enum Kind { kQuery, kKey, kKinds };

struct BackwardArgs {
  Bf16* d;
  float* partial;  // [parts, kKinds, head_dim]
  const Bf16 *raw, *q_norm, *k_norm;
  RotaryTables rotary;
  int64_t tokens;
  int query_heads, kv_heads, head_dim;
  float eps;
};

struct Head {
  Bf16* d;  // this lane's elements; null: the lane has none
  int64_t token;
  bool is_query;
  Chunk gradient, raw;
};

// Head `item` of the tokens from `first` on, counted over queries and keys.
template <bool kVector>
__device__ __forceinline__ Head load_head(const BackwardArgs& a, int64_t first, int item, int items,
                                          int begin) {
  Head h{nullptr, first, true, {}, {}};
  const int valid = a.head_dim - begin;
  if (item >= items) return h;
  const int heads = a.query_heads + a.kv_heads;
  const int token = item / heads, head = item - token * heads;
  h.token = first + token;
  h.is_query = head < a.query_heads;
  if (valid <= 0) return h;
  const int64_t at = h.token * (heads + a.kv_heads) * a.head_dim + head * a.head_dim + begin;
  h.d = a.d + at;
  h.gradient = load_chunk<kVector>(h.d, valid);
  if (a.raw != nullptr) h.raw = load_chunk<kVector>(a.raw + at, valid);
  return h;
}

// g becomes the gradient by the raw head; dw receives this head's share.
template <int kLanes>
__device__ __forceinline__ void norm_backward(float (&g)[kChunk], const Chunk& raw,
                                              const Chunk& norm, bool has_norm, int head_dim,
                                              float eps, float (&dw)[kChunk]) {
  float x[kChunk], w[kChunk], squares[4] = {}, products[4] = {};
  unpack(x, raw);
  unpack(w, norm);
  add_squares(squares, raw);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    w[i] = __fmul_rn(g[i], w[i]);
    products[i % 4] = __fmaf_rn(w[i], x[i], products[i % 4]);
  }
  float sum[2] = {join_chains(squares), join_chains(products)};
  sum_over_head<kLanes>(sum);
  if (!has_norm) return;
  const auto width = static_cast<float>(head_dim);
  const float r = inverse_rms(sum[0], width, eps);
  const float mean = __fdiv_rn(__fmul_rn(sum[1], r), width);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float normed = __fmul_rn(x[i], r);
    dw[i] = __fmaf_rn(g[i], normed, dw[i]);
    g[i] = __fmul_rn(r, __fmaf_rn(-normed, mean, w[i]));
  }
}

// The groups' shares, added in ascending order.
template <int kLanes>
__device__ __forceinline__ void store_partial(const BackwardArgs& a,
                                              const float (&dw)[kKinds][kChunk], float* shared) {
#pragma unroll
  for (int kind = 0; kind < kKinds; ++kind) {
    __syncthreads();
    store_floats<true>(shared + threadIdx.x * kChunk, dw[kind], kChunk);
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x);
    if (column >= a.head_dim) continue;
    float sum = shared[column];
    for (int group = 1; group < kHeadThreads / kLanes; ++group) {
      sum = __fadd_rn(sum, shared[group * kLanes * kChunk + column]);
    }
    a.partial[(int64_t{blockIdx.x} * kKinds + kind) * a.head_dim + column] = sum;
  }
}

template <int kLanes, bool kVector>
__global__ void __launch_bounds__(kHeadThreads, 2)
    qk_norm_rotary_backward_kernel(const BackwardArgs a) {
  enter_kernel();
  constexpr int kGroups = kHeadThreads / kLanes;
  __shared__ __align__(16) float shared[kHeadThreads * kChunk];
  const int64_t first = part_begin(blockIdx.x, gridDim.x, a.tokens);
  const int64_t tokens = part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.tokens) - first;
  const int items = static_cast<int>(tokens) * (a.query_heads + a.kv_heads);
  const int begin = static_cast<int>(threadIdx.x) % kLanes * kChunk, valid = a.head_dim - begin;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  Chunk q_norm{}, k_norm{};
  if (a.q_norm != nullptr && valid > 0) q_norm = load_chunk<kVector>(a.q_norm + begin, valid);
  if (a.k_norm != nullptr && valid > 0) k_norm = load_chunk<kVector>(a.k_norm + begin, valid);
  float dw[kKinds][kChunk] = {};
  Head next = load_head<kVector>(a, first, group, items, begin);
  for (int base = 0; base < items; base += kGroups) {
    const Head head = next;
    next = load_head<kVector>(a, first, base + kGroups + group, items, begin);
    const Rotation rotation = load_rotation<kVector>(a.rotary, head.token, begin, true);
    float g[kChunk];
    unpack(g, head.gradient);
    rotate<kLanes, kVector>(g, rotation, begin, static_cast<int>(a.rotary.rotary_dim),
                            a.rotary.interleaved, shared);
    const bool has_norm = (head.is_query ? a.q_norm : a.k_norm) != nullptr && head.d != nullptr;
    float share[kChunk] = {};
    norm_backward<kLanes>(g, head.raw, head.is_query ? q_norm : k_norm, has_norm, a.head_dim, a.eps,
                          share);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      dw[kQuery][i] = __fadd_rn(dw[kQuery][i], head.is_query ? share[i] : 0.0f);
      dw[kKey][i] = __fadd_rn(dw[kKey][i], head.is_query ? 0.0f : share[i]);
    }
    if (head.d != nullptr) store_chunk<kVector>(head.d, pack(g), valid);
  }
  if (a.partial != nullptr) store_partial<kLanes>(a, dw, shared);
}

int64_t count_parts(int64_t tokens) { return tokens < kMaxParts ? tokens : kMaxParts; }

}  // namespace

size_t qk_norm_rotary_backward_workspace(const QkvShape& shape) {
  return static_cast<size_t>(count_parts(shape.tokens) * kKinds * shape.head_dim) * sizeof(float);
}

cudaError_t qk_norm_rotary_backward(void* d, float* dq_norm, float* dk_norm, const void* raw,
                                    const void* q_norm, const void* k_norm, float eps,
                                    const RotaryTables& rotary, const QkvShape& shape,
                                    void* workspace, cudaStream_t stream) {
  const bool has_norm = q_norm != nullptr || k_norm != nullptr;
  const int64_t heads = shape.query_heads + shape.kv_heads;
  const int64_t parts = count_parts(shape.tokens);
  if (!is_served(shape, rotary) || (has_norm && (raw == nullptr || workspace == nullptr))) {
    return cudaErrorInvalidValue;
  }
  if (shape.tokens == 0 || heads == 0) return cudaSuccess;
  if (divide_up(shape.tokens, parts) * heads > INT_MAX / 2) return cudaErrorInvalidValue;
  const BackwardArgs args{static_cast<Bf16*>(d),
                          has_norm ? static_cast<float*>(workspace) : nullptr,
                          static_cast<const Bf16*>(raw),
                          static_cast<const Bf16*>(q_norm),
                          static_cast<const Bf16*>(k_norm),
                          rotary,
                          shape.tokens,
                          static_cast<int>(shape.query_heads),
                          static_cast<int>(shape.kv_heads),
                          static_cast<int>(shape.head_dim),
                          eps};
  const bool vector = turns_by_chunks(shape, rotary) && is_aligned(d) && is_aligned(raw) &&
                      is_aligned(q_norm) && is_aligned(k_norm);
  const cudaError_t error = with_lanes(shape.head_dim, [&]<int kLanes>() {
    auto* kernel = vector ? qk_norm_rotary_backward_kernel<kLanes, true>
                          : qk_norm_rotary_backward_kernel<kLanes, false>;
    return launch(kernel, grid_of(parts), kHeadThreads, stream, args);
  });
  if (error != cudaSuccess || !has_norm) return error;
  return add_partial_sums(
      {q_norm != nullptr ? dq_norm : nullptr, args.partial, parts, kKinds * shape.head_dim,
       k_norm != nullptr ? dk_norm : nullptr, shape.head_dim},
      stream);
}

}  // namespace slimexx::kernels
