// Gradient of head norms and rotation, in place; without norms, rotate_back computes this gradient.
// With g the gradient rotated back, x the raw head, r = 1 / rms(x) and m = mean(g w x r):
//   dx = r (g w - x r m),  dw += g x r.
// A lane processes one head for all tokens of its block's part and sums dw for its elements in
// registers. The next token's elements are loaded while the lane works on the current one.
#include "kernels/rows/head_tiles.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kResidentWarps = 16;  // at 128 registers
enum Kind { kQuery, kKey, kKinds };

struct BackwardArgs {
  Bf16* d;
  float* partial;  // [blocks, kKinds, head_dim]
  const Bf16 *raw, *q_norm, *k_norm;
  RotaryTables rotary;
  int64_t tokens;
  int query_heads, kv_heads, head_dim;
  int row;  // elements per token
  int tile_heads;
  float inverse_dim, eps;
};

// Turns g into the gradient of the raw head and adds to dw. All lanes of the warp must call this
// function.
template <int kLanes, HeadMode kMode>
__device__ __forceinline__ void norm_backward(const BackwardArgs& a, float (&g)[kPart],
                                              const HeadPart& raw, const HeadPart& norm,
                                              const LanePlace& place, bool has_norm,
                                              float (&dw)[kPart]) {
  float x[kPart], weighted[kPart], weight[kPart];
  unpack(x, raw);
  unpack(weight, norm);
#pragma unroll
  for (int i = 0; i < kPart; ++i) weighted[i] = __fmul_rn(g[i], weight[i]);
  const LaneSums squares = sum_products<kMode>(x, x, place);
  const LaneSums products = sum_products<kMode>(weighted, x, place);
  float sum[2] = {__fadd_rn(squares.first, squares.second),
                  __fadd_rn(products.first, products.second)};
  sum_over_head<kLanes>(sum);
  if (!has_norm) return;
  const float r = inverse_rms(sum[0], a.inverse_dim, a.eps);
  const float mean = __fmul_rn(__fmul_rn(sum[1], r), a.inverse_dim);
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const float normed = __fmul_rn(x[i], r);
    dw[i] = __fmaf_rn(g[i], normed, dw[i]);
    g[i] = __fmul_rn(r, __fmaf_rn(-normed, mean, weighted[i]));
  }
}

// Stores the block's partial dw for the query and the key norm, each summed over heads in ascending
// order.
template <int kLanes>
__device__ __forceinline__ void store_partial(const BackwardArgs& a, const LanePlace& place,
                                              const float (&dw)[kPart], float* shared) {
  float* own = shared + threadIdx.x / kLanes * kLanes * kPart;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPart; ++i) own[element_of(place, i)] = dw[i];
  __syncthreads();
  const int first = static_cast<int>(blockIdx.y) * a.tile_heads;
  const int end = min(a.tile_heads, a.query_heads + a.kv_heads - first);
  const int queries = min(max(a.query_heads - first, 0), end);
  const int64_t block = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  for (int i = threadIdx.x; i < kKinds * a.head_dim; i += static_cast<int>(blockDim.x)) {
    const int kind = i / a.head_dim, column = i - kind * a.head_dim;
    float sum = 0.0f;
    for (int head = kind == kQuery ? 0 : queries; head < (kind == kQuery ? queries : end); ++head) {
      sum = __fadd_rn(sum, shared[head * kLanes * kPart + column]);
    }
    a.partial[block * kKinds * a.head_dim + i] = sum;
  }
}

template <int kLanes, HeadMode kMode>
__global__ void __launch_bounds__(kTileThreads, 3)
    qk_norm_rotary_backward_kernel(const __grid_constant__ BackwardArgs a) {
  enter_kernel();
  __shared__ float shared[kTileThreads * kPart];
  const auto end = static_cast<int>(part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.tokens));
  auto token = static_cast<int>(part_begin(blockIdx.x, gridDim.x, a.tokens));
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int head = static_cast<int>(blockIdx.y) * a.tile_heads + group;
  const bool exists = group < a.tile_heads && head < a.query_heads + a.kv_heads;
  const Bf16* norm = head < a.query_heads ? a.q_norm : a.k_norm;
  const bool has_norm = exists && norm != nullptr;
  const LanePlace place = find_place(a.rotary, static_cast<int>(threadIdx.x) % kLanes, a.head_dim);
  const int64_t at = int64_t{token} * a.row + int64_t{head} * a.head_dim;
  Bf16* d = a.d + at;
  const Bf16* raw = a.raw + at;
  const bool rotates = a.rotary.rotary_dim > 0;
  HeadPart next{}, next_raw{};
  if (exists) next = load_part<kMode>(d, place, a.head_dim);
  if (exists) next_raw = load_part<kMode>(raw, place, a.head_dim);
  auto rotation = load_rotation<kMode>(a.rotary, rotates ? a.rotary.positions[token] : 0, place);
  int next_position = rotates && token + 1 < end ? a.rotary.positions[token + 1] : 0;
  HeadPart weight{};
  if (has_norm) weight = load_part<kMode>(norm, place, a.head_dim);
  float dw[kPart] = {};
  if (__all_sync(0xffffffffu, !exists)) token = end;
  for (; token < end; ++token) {
    float g[kPart];
    unpack(g, next);
    const HeadPart x = next_raw;
    Bf16* out = d;
    d += a.row;
    raw += a.row;
    if (token + 1 < end) {
      if (exists) next = load_part<kMode>(d, place, a.head_dim);
      if (exists) next_raw = load_part<kMode>(raw, place, a.head_dim);
    }
    rotate<kLanes, kMode, true>(g, rotation, a.rotary, place, shared);
    if (token + 1 < end) rotation = load_rotation<kMode>(a.rotary, next_position, place);
    if (rotates && token + 2 < end) next_position = a.rotary.positions[token + 2];
    norm_backward<kLanes, kMode>(a, g, x, weight, place, has_norm, dw);
    if (exists) store_part<kMode>(out, pack(g), place, a.head_dim);
  }
  store_partial<kLanes>(a, place, dw, shared);
}

HeadTiles choose_tiles(const QkvShape& s) {
  return choose_head_tiles(s.tokens, s.query_heads + s.kv_heads, count_lanes(s.head_dim),
                           kResidentWarps);
}

}  // namespace

size_t qk_norm_rotary_backward_workspace(const QkvShape& shape) {
  if (shape.query_heads + shape.kv_heads == 0) return 0;
  const HeadTiles t = choose_tiles(shape);
  return static_cast<size_t>(int64_t{t.parts} * t.tiles * kKinds * shape.head_dim) * sizeof(float);
}

cudaError_t qk_norm_rotary_backward(void* d, float* dq_norm, float* dk_norm, const void* raw,
                                    const void* q_norm, const void* k_norm, float eps,
                                    const RotaryTables& rotary, const QkvShape& shape,
                                    void* workspace, cudaStream_t stream) {
  const bool has_norm = q_norm != nullptr || k_norm != nullptr;
  if (!is_served(shape, rotary) || (has_norm && (raw == nullptr || workspace == nullptr))) {
    return cudaErrorInvalidValue;
  }
  if (shape.tokens == 0 || shape.query_heads + shape.kv_heads == 0) return cudaSuccess;
  if (!has_norm) return rotate_back(d, rotary, shape, stream);
  const HeadTiles t = choose_tiles(shape);
  const BackwardArgs args{
      static_cast<Bf16*>(d),
      static_cast<float*>(workspace),
      static_cast<const Bf16*>(raw),
      static_cast<const Bf16*>(q_norm),
      static_cast<const Bf16*>(k_norm),
      rotary,
      shape.tokens,
      static_cast<int>(shape.query_heads),
      static_cast<int>(shape.kv_heads),
      static_cast<int>(shape.head_dim),
      static_cast<int>((shape.query_heads + 2 * shape.kv_heads) * shape.head_dim),
      t.tile_heads,
      1.0f / static_cast<float>(shape.head_dim),
      eps};
  const bool aligned = has_aligned_rows(d) && has_aligned_rows(raw) && has_aligned_rows(q_norm) &&
                       has_aligned_rows(k_norm);
  const dim3 grid(static_cast<unsigned>(t.parts), static_cast<unsigned>(t.tiles));
  const cudaError_t error = with_lanes(
      shape.head_dim, choose_mode(shape, rotary, aligned), [&]<int kLanes, HeadMode kMode>() {
        return launch(qk_norm_rotary_backward_kernel<kLanes, kMode>, grid, t.threads, stream, args);
      });
  if (error != cudaSuccess) return error;
  return add_partial_sums(
      {q_norm != nullptr ? dq_norm : nullptr, args.partial, int64_t{t.parts} * t.tiles,
       kKinds * shape.head_dim, k_norm != nullptr ? dk_norm : nullptr, shape.head_dim},
      stream);
}

}  // namespace slimexx::kernels
