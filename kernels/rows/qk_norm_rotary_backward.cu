// Gradient of head norms and rotation, in place. With g the gradient turned back, x the raw head,
// r = 1 / rms(x) and m = mean(g w x r): dx = r (g w - x r m), dw += g x r.
// A thread block walks one part of the tokens, round after round of heads over its groups of lanes;
// each lane keeps its elements' share of both weight gradients.
#include "kernels/rows/head_lanes.cuh"
#include "kernels/rows/partial_sums.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kMaxParts = 396;
constexpr int64_t kRingBytes = 66 << 10;       // of one block, for three on a multiprocessor
constexpr int64_t kMaxStageBytes = 100 << 10;  // wider tokens go one by one
enum Kind { kQuery, kKey, kKinds };
enum Source { kGradient, kCos, kSin, kRaw };

struct BackwardArgs {
  Bf16* d;
  float* partial;  // [parts, kKinds, head_dim]; null: no norms
  const Bf16 *raw, *q_norm, *k_norm;
  RotaryTables rotary;
  int64_t tokens;
  int query_heads, kv_heads, head_dim;
  float inverse_dim, eps;
  RingPlan ring;
};

// g becomes the gradient by the raw head; the head's share is added to dw. All lanes of the warp
// take part.
template <int kLanes>
__device__ __forceinline__ void norm_backward(const BackwardArgs& a, float (&g)[kChunk],
                                              const Chunk& raw, const Chunk& norm, bool has_norm,
                                              bool is_query, float (&dw)[kKinds][kChunk]) {
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
  const float r = inverse_rms(sum[0], a.inverse_dim, a.eps);
  const float mean = __fmul_rn(__fmul_rn(sum[1], r), a.inverse_dim);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float normed = __fmul_rn(x[i], r);
    if (is_query) {
      dw[kQuery][i] = __fmaf_rn(g[i], normed, dw[kQuery][i]);
    } else {
      dw[kKey][i] = __fmaf_rn(g[i], normed, dw[kKey][i]);
    }
    g[i] = __fmul_rn(r, __fmaf_rn(-normed, mean, w[i]));
  }
}

// The groups' shares, added in ascending order.
template <int kLanes>
__device__ __forceinline__ void store_partial(const BackwardArgs& a, const LanePlace& place,
                                              const float (&dw)[kKinds][kChunk], float* shared) {
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  float* own = shared + threadIdx.x / kLanes * kLanes * kChunk;
#pragma unroll
  for (int kind = 0; kind < kKinds; ++kind) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kChunk; ++i) own[element_of(place, i)] = dw[kind][i];
    __syncthreads();
    for (int column = threadIdx.x; column < a.head_dim; column += static_cast<int>(blockDim.x)) {
      float sum = shared[column];
      for (int group = 1; group < groups; ++group) {
        sum = __fadd_rn(sum, shared[group * kLanes * kChunk + column]);
      }
      a.partial[(int64_t{blockIdx.x} * kKinds + kind) * a.head_dim + column] = sum;
    }
  }
}

// A token's operands, in shared memory or, one by one, in global memory.
struct Token {
  const Bf16 *gradient, *raw;
  const float *cos, *sin;
};

template <HeadMode kMode>
__device__ __forceinline__ Token find_token(const BackwardArgs& a, const RowRing& ring,
                                            int64_t token) {
  if constexpr (kMode != kOneByOne) {
    return {ring.row<Bf16>(kGradient), ring.row<Bf16>(kRaw), ring.row<float>(kCos),
            ring.row<float>(kSin)};
  }
  const int64_t at = token * (a.query_heads + 2 * a.kv_heads) * a.head_dim;
  const int64_t half = a.rotary.rotary_dim / 2;
  const int64_t angles = half == 0 ? 0 : a.rotary.positions[token] * half;
  return {a.d + at, a.raw + at, a.rotary.cos + angles, a.rotary.sin + angles};
}

template <int kLanes, HeadMode kMode>
__global__ void __launch_bounds__(kMaxThreads, 3)
    qk_norm_rotary_backward_kernel(const __grid_constant__ BackwardArgs a) {
  enter_kernel();
  extern __shared__ __align__(16) char buffer[];
  __shared__ uint64_t full[kMaxStages];
  __shared__ float shared[kMaxThreads * kChunk];
  const int64_t first = part_begin(blockIdx.x, gridDim.x, a.tokens);
  const int64_t end = part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.tokens);
  const int groups = static_cast<int>(blockDim.x) / kLanes, heads = a.query_heads + a.kv_heads;
  const LanePlace place = find_place(a.rotary, static_cast<int>(threadIdx.x) % kLanes, a.head_dim);
  Chunk q_norm{}, k_norm{};
  if (a.q_norm != nullptr) q_norm = load_lane<kMode>(a.q_norm, place, a.head_dim);
  if (a.k_norm != nullptr) k_norm = load_lane<kMode>(a.k_norm, place, a.head_dim);
  float dw[kKinds][kChunk] = {};
  RowRing ring(a.ring, full, buffer, first, kMode == kOneByOne ? first : end);
  for (int64_t token = first; token < end; ++token) {
    if constexpr (kMode != kOneByOne) ring.await_row();
    const Token t = find_token<kMode>(a, ring, token);
    const auto rotation = load_rotation<kMode>(a.rotary, t.cos, t.sin, place, -1.0f);
    Bf16* out = a.d + token * (heads + a.kv_heads) * a.head_dim;
    for (int base = 0; base < heads; base += groups) {
      const int head = base + static_cast<int>(threadIdx.x) / kLanes;
      const bool exists = head < heads, is_query = head < a.query_heads;
      Chunk raw{}, gradient{};
      if (exists) gradient = load_lane<kMode>(t.gradient + head * a.head_dim, place, a.head_dim);
      float g[kChunk];
      unpack(g, gradient);
      rotate<kLanes, kMode>(g, rotation, a.rotary, place, shared);
      if (a.partial != nullptr) {
        if (exists) raw = load_lane<kMode>(t.raw + head * a.head_dim, place, a.head_dim);
        const bool has_norm = exists && (is_query ? a.q_norm : a.k_norm) != nullptr;
        norm_backward<kLanes>(a, g, raw, is_query ? q_norm : k_norm, has_norm, is_query, dw);
      }
      if (exists) store_lane<kMode>(out + head * a.head_dim, pack(g), place, a.head_dim);
    }
    if constexpr (kMode != kOneByOne) {
      __syncthreads();
      ring.release_row();
    }
  }
  if (a.partial != nullptr) store_partial<kLanes>(a, place, dw, shared);
}

int64_t count_parts(int64_t tokens) { return tokens < kMaxParts ? tokens : kMaxParts; }

template <int kLanes, HeadMode kMode>
cudaError_t run(BackwardArgs& args, cudaStream_t stream) {
  const int64_t heads = args.query_heads + args.kv_heads, head_bytes = int64_t{2} * args.head_dim;
  const int64_t pitch = (heads + args.kv_heads) * head_bytes;
  const int64_t half_bytes = args.rotary.rotary_dim / 2 * 4;
  int shared_bytes = 0;
  if constexpr (kMode != kOneByOne) {
    args.ring.index = half_bytes > 0 ? args.rotary.positions : nullptr;
    add_source(args.ring, args.d, pitch, heads * head_bytes);
    for (const float* table : {args.rotary.cos, args.rotary.sin}) {
      if (half_bytes > 0) add_source(args.ring, table, half_bytes, half_bytes, true);
    }
    if (args.partial != nullptr) {
      args.ring.offset[kRaw] = args.ring.stage_bytes;
      add_source(args.ring, args.raw, pitch, heads * head_bytes);
    }
    shared_bytes = choose_stages(args.ring, kRingBytes);
  }
  return launch_with_shared(shared_bytes, qk_norm_rotary_backward_kernel<kLanes, kMode>,
                            grid_of(count_parts(args.tokens)), choose_head_threads(heads, kLanes),
                            stream, args);
}

}  // namespace

size_t qk_norm_rotary_backward_workspace(const QkvShape& shape) {
  return static_cast<size_t>(count_parts(shape.tokens) * kKinds * shape.head_dim) * sizeof(float);
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
  BackwardArgs args{static_cast<Bf16*>(d),
                    has_norm ? static_cast<float*>(workspace) : nullptr,
                    static_cast<const Bf16*>(raw),
                    static_cast<const Bf16*>(q_norm),
                    static_cast<const Bf16*>(k_norm),
                    rotary,
                    shape.tokens,
                    static_cast<int>(shape.query_heads),
                    static_cast<int>(shape.kv_heads),
                    static_cast<int>(shape.head_dim),
                    1.0f / static_cast<float>(shape.head_dim),
                    eps,
                    {}};
  const int64_t stage_bytes =
      (shape.query_heads + shape.kv_heads) * shape.head_dim * 4 + rotary.rotary_dim * 4;
  const bool aligned = stage_bytes <= kMaxStageBytes && is_aligned(d) && is_aligned(raw) &&
                       is_aligned(q_norm) && is_aligned(k_norm);
  const cudaError_t error =
      with_lanes(shape.head_dim, choose_mode(shape, rotary, aligned),
                 [&]<int kLanes, HeadMode kMode>() { return run<kLanes, kMode>(args, stream); });
  if (error != cudaSuccess || !has_norm) return error;
  return add_partial_sums(
      {q_norm != nullptr ? dq_norm : nullptr, args.partial, count_parts(shape.tokens),
       kKinds * shape.head_dim, k_norm != nullptr ? dk_norm : nullptr, shape.head_dim},
      stream);
}

}  // namespace slimexx::kernels
