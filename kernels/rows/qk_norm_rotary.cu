// Queries, keys and values of one token: head norms, rotation, and the way to the pages. Few tokens
// are spread over the device, one head a group of lanes; many stream through shared memory, a block
// taking one part of them. Both compute a head by turn_head.
#include "kernels/rows/head_lanes.cuh"
#include "kernels/rows/partial_sums.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int64_t kFewTokens = 512;
constexpr int64_t kMaxParts = 528;
constexpr int64_t kRingBytes = 52 << 10;  // of one block, for four on a multiprocessor
enum Source { kRow, kCos, kSin };

struct ForwardArgs {
  Bf16* out;
  const Bf16 *in, *q_norm, *k_norm;
  KvPages pages;
  RotaryTables rotary;
  int64_t tokens;
  int query_heads, kv_heads, head_dim;
  int out_heads;  // of a row of `out`
  int heads;      // to be written: without the values where they stay
  int blocks;     // of one token, where tokens are few
  float inverse_dim, eps;
  RingPlan ring;
};

// Where a head goes; null: nowhere. `slot` is the token's, where there are pages.
__device__ __forceinline__ Bf16* find_target(const ForwardArgs& a, int64_t token, int64_t slot,
                                             int head) {
  if (head < a.query_heads || a.pages.k == nullptr) {
    return a.out + (token * a.out_heads + head) * a.head_dim;
  }
  if (slot < 0) return nullptr;
  const bool is_value = head >= a.query_heads + a.kv_heads;
  const int own = head - a.query_heads - (is_value ? a.kv_heads : 0);
  return static_cast<Bf16*>(is_value ? a.pages.v : a.pages.k) +
         (slot * a.kv_heads + own) * a.head_dim;
}

// Norm weights of this lane, and what its heads need besides.
template <HeadMode kMode>
struct Lane {
  LanePlace place;
  Chunk q_norm, k_norm;
};

template <HeadMode kMode>
__device__ __forceinline__ Lane<kMode> make_lane(const ForwardArgs& a, int lane) {
  Lane<kMode> l{find_place(a.rotary, lane, a.head_dim), {}, {}};
  if (a.q_norm != nullptr) l.q_norm = load_lane<kMode>(a.q_norm, l.place, a.head_dim);
  if (a.k_norm != nullptr) l.k_norm = load_lane<kMode>(a.k_norm, l.place, a.head_dim);
  return l;
}

// What is stored of a head. All lanes of the warp take part, those without a head too.
template <int kLanes, HeadMode kMode>
__device__ __forceinline__ Chunk turn_head(const ForwardArgs& a, int head, const Chunk& raw,
                                           const Lane<kMode>& lane, const Rotation<kMode>& rotation,
                                           float* stage) {
  const bool is_value = head >= a.query_heads + a.kv_heads;
  if (__all_sync(0xffffffffu, is_value)) return raw;
  float x[kChunk];
  unpack(x, raw);
  if (a.q_norm != nullptr || a.k_norm != nullptr) {
    const bool is_query = head < a.query_heads;
    float chain[4] = {0, 0, 0, 0};
    add_squares(chain, raw);
    float sum[1] = {join_chains(chain)};
    sum_over_head<kLanes>(sum);
    if ((is_query ? a.q_norm : a.k_norm) != nullptr) {
      const float r = inverse_rms(sum[0], a.inverse_dim, a.eps);
      float weight[kChunk];
      unpack(weight, is_query ? lane.q_norm : lane.k_norm);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i] = __fmul_rn(weight[i], __fmul_rn(x[i], r));
    }
  }
  rotate<kLanes, kMode>(x, rotation, a.rotary, lane.place, stage);
  const Chunk turned = pack(x);
  return is_value ? raw : turned;
}

template <int kLanes, HeadMode kMode>
__global__ void __launch_bounds__(kMaxThreads)
    few_tokens_kernel(const __grid_constant__ ForwardArgs a) {
  enter_kernel();
  __shared__ float stage[kMode == kOneByOne ? kMaxThreads * kChunk : 1];
  const int64_t token = blockIdx.x / static_cast<unsigned>(a.blocks);
  const int share = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.blocks));
  const int head = (share * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) / kLanes;
  const int64_t row = token * (a.query_heads + 2 * a.kv_heads) * a.head_dim;
  const Lane<kMode> lane = make_lane<kMode>(a, static_cast<int>(threadIdx.x) % kLanes);
  Chunk raw{};
  if (head < a.heads) {
    raw = load_lane<kMode>(a.in + row + head * a.head_dim, lane.place, a.head_dim);
  }
  const int64_t slot = a.pages.k != nullptr ? a.pages.slots[token] : 0;
  const int64_t half = a.rotary.rotary_dim / 2;
  const int64_t angles = half == 0 ? 0 : a.rotary.positions[token] * half;
  const auto rotation = load_rotation<kMode>(a.rotary, a.rotary.cos + angles, a.rotary.sin + angles,
                                             lane.place, 1.0f);
  const Chunk turned = turn_head<kLanes, kMode>(a, head, raw, lane, rotation, stage);
  Bf16* target = head < a.heads ? find_target(a, token, slot, head) : nullptr;
  if (target != nullptr) store_lane<kMode>(target, turned, lane.place, a.head_dim);
}

template <int kLanes, HeadMode kMode>
__global__ void __launch_bounds__(kMaxThreads, 4)
    many_tokens_kernel(const __grid_constant__ ForwardArgs a) {
  enter_kernel();
  extern __shared__ __align__(16) char buffer[];
  __shared__ uint64_t full[kMaxStages];
  const int64_t first = part_begin(blockIdx.x, gridDim.x, a.tokens);
  const int64_t end = part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.tokens);
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const Lane<kMode> lane = make_lane<kMode>(a, static_cast<int>(threadIdx.x) % kLanes);
  RowRing ring(a.ring, full, buffer, first, end);
  for (int64_t token = first; token < end; ++token) {
    const int64_t slot = a.pages.k != nullptr ? a.pages.slots[token] : 0;
    ring.await_row();
    const Bf16* row = ring.row<Bf16>(kRow);
    const auto rotation = load_rotation<kMode>(a.rotary, ring.row<float>(kCos),
                                               ring.row<float>(kSin), lane.place, 1.0f);
    for (int base = 0; base < a.heads; base += groups) {
      const int head = base + group;
      Chunk raw{};
      if (head < a.heads) {
        raw = load_lane<kMode>(row + head * a.head_dim, lane.place, a.head_dim);
      }
      const Chunk turned = turn_head<kLanes, kMode>(a, head, raw, lane, rotation, nullptr);
      Bf16* target = head < a.heads ? find_target(a, token, slot, head) : nullptr;
      if (target != nullptr) store_lane<kMode>(target, turned, lane.place, a.head_dim);
    }
    __syncthreads();
    ring.release_row();
  }
}

template <int kLanes, HeadMode kMode>
cudaError_t run(ForwardArgs& args, cudaStream_t stream) {
  if constexpr (kMode != kOneByOne) {
    if (args.tokens > kFewTokens) {
      const int64_t half_bytes = args.rotary.rotary_dim / 2 * 4;
      const int64_t head_bytes = int64_t{2} * args.head_dim;
      add_source(args.ring, args.in, (args.query_heads + 2 * args.kv_heads) * head_bytes,
                 args.heads * head_bytes);
      if (half_bytes > 0) {
        args.ring.index = args.rotary.positions;
        add_source(args.ring, args.rotary.cos, half_bytes, half_bytes, true);
        add_source(args.ring, args.rotary.sin, half_bytes, half_bytes, true);
      }
      const int shared_bytes = choose_stages(args.ring, kRingBytes);
      if (shared_bytes <= 200 << 10) {
        const int64_t parts = args.tokens < kMaxParts ? args.tokens : kMaxParts;
        return launch_with_shared(shared_bytes, many_tokens_kernel<kLanes, kMode>, grid_of(parts),
                                  choose_head_threads(args.heads, kLanes), stream, args);
      }
    }
  }
  args.blocks = static_cast<int>(divide_up(int64_t{args.heads} * kLanes, kMaxThreads));
  if (args.tokens * args.blocks > INT_MAX) return cudaErrorInvalidValue;
  const auto threads =
      static_cast<int>(divide_up(divide_up(args.heads, args.blocks) * kLanes, 32) * 32);
  return launch(few_tokens_kernel<kLanes, kMode>, grid_of(args.tokens * args.blocks), threads,
                stream, args);
}

}  // namespace

cudaError_t qk_norm_rotary_forward(void* out, int64_t out_heads, const void* in, const void* q_norm,
                                   const void* k_norm, float eps, const RotaryTables& rotary,
                                   const KvPages& pages, const QkvShape& shape,
                                   cudaStream_t stream) {
  const bool takes_values = out_heads == shape.query_heads + 2 * shape.kv_heads;
  if (!is_served(shape, rotary) ||
      !(takes_values || (out_heads == shape.query_heads + shape.kv_heads && out != in))) {
    return cudaErrorInvalidValue;
  }
  const bool values_stay = pages.k == nullptr && (out == in || !takes_values);
  const int64_t heads = shape.query_heads + (values_stay ? 1 : 2) * shape.kv_heads;
  if (shape.tokens == 0 || heads == 0) return cudaSuccess;
  ForwardArgs args{};
  args.out = static_cast<Bf16*>(out);
  args.in = static_cast<const Bf16*>(in);
  args.q_norm = static_cast<const Bf16*>(q_norm);
  args.k_norm = static_cast<const Bf16*>(k_norm);
  args.pages = pages;
  args.rotary = rotary;
  args.tokens = shape.tokens;
  args.query_heads = static_cast<int>(shape.query_heads);
  args.kv_heads = static_cast<int>(shape.kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  args.out_heads = static_cast<int>(out_heads);
  args.heads = static_cast<int>(heads);
  args.inverse_dim = 1.0f / static_cast<float>(shape.head_dim);
  args.eps = eps;
  const bool aligned = is_aligned(out) && is_aligned(in) && is_aligned(q_norm) &&
                       is_aligned(k_norm) && is_aligned(pages.k) && is_aligned(pages.v);
  return with_lanes(shape.head_dim, choose_mode(shape, rotary, aligned),
                    [&]<int kLanes, HeadMode kMode>() { return run<kLanes, kMode>(args, stream); });
}

}  // namespace slimexx::kernels
