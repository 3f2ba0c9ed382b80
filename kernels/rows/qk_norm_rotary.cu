// Queries, keys and values of one token: head norms, rotation, and the way to the pages. A thread
// block serves one token, or a share of its heads; every lane loads the rotation of its elements
// once and applies it to up to kRounds heads.
#include "kernels/rows/head_lanes.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kRounds = 4;

struct ForwardArgs {
  Bf16* out;
  const Bf16 *in, *q_norm, *k_norm;
  KvPages pages;
  RotaryTables rotary;
  int query_heads, kv_heads, head_dim;
  int heads;            // to be written: without the values where they stay in place
  int blocks;           // of one token
  int heads_per_block;  // a multiple of the heads of one round, at most kRounds of them
  float eps;
};

// Where a head goes; null: nowhere.
__device__ __forceinline__ Bf16* find_target(const ForwardArgs& a, int64_t token, int head) {
  const int row = (a.query_heads + 2 * a.kv_heads) * a.head_dim;
  if (head < a.query_heads || a.pages.k == nullptr) return a.out + token * row + head * a.head_dim;
  const int64_t slot = a.pages.slots[token];
  if (slot < 0) return nullptr;
  const bool is_value = head >= a.query_heads + a.kv_heads;
  const int own = head - a.query_heads - (is_value ? a.kv_heads : 0);
  auto* pages = static_cast<Bf16*>(is_value ? a.pages.v : a.pages.k);
  return pages + (slot * a.kv_heads + own) * a.head_dim;
}

template <int kLanes, bool kVector>
__global__ void __launch_bounds__(kHeadThreads) qk_norm_rotary_kernel(const ForwardArgs a) {
  enter_kernel();
  __shared__ float stage[kVector ? 1 : kHeadThreads * kChunk];
  const unsigned token = blockIdx.x / static_cast<unsigned>(a.blocks);
  const int share = static_cast<int>(blockIdx.x - token * static_cast<unsigned>(a.blocks));
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int first = share * a.heads_per_block + static_cast<int>(threadIdx.x) / kLanes;
  const int end = min(a.heads, (share + 1) * a.heads_per_block);
  const int begin = static_cast<int>(threadIdx.x) % kLanes * kChunk, valid = a.head_dim - begin;
  const Bf16* row = a.in + int64_t{token} * (a.query_heads + 2 * a.kv_heads) * a.head_dim + begin;
  Chunk chunk[kRounds], q_norm{}, k_norm{};
#pragma unroll
  for (int j = 0; j < kRounds; ++j) {
    const int head = first + j * groups;
    chunk[j] =
        head < end && valid > 0 ? load_chunk<kVector>(row + head * a.head_dim, valid) : Chunk{};
  }
  if (a.q_norm != nullptr && valid > 0) q_norm = load_chunk<kVector>(a.q_norm + begin, valid);
  if (a.k_norm != nullptr && valid > 0) k_norm = load_chunk<kVector>(a.k_norm + begin, valid);
  const Rotation rotation = load_rotation<kVector>(a.rotary, token, begin, false);
#pragma unroll
  for (int j = 0; j < kRounds; ++j) {
    const int head = first + j * groups;
    if (j * groups + share * a.heads_per_block >= end) break;  // for the whole block
    float x[kChunk], weight[kChunk];
    unpack(x, chunk[j]);
    const bool is_query = head < a.query_heads;
    if ((is_query ? a.q_norm : a.k_norm) != nullptr) {
      unpack(weight, is_query ? q_norm : k_norm);
    }
    float chain[4] = {0, 0, 0, 0};
    add_squares(chain, chunk[j]);
    float sum[1] = {join_chains(chain)};
    sum_over_head<kLanes>(sum);
    if ((is_query ? a.q_norm : a.k_norm) != nullptr) {
      const float r = inverse_rms(sum[0], static_cast<float>(a.head_dim), a.eps);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i] = __fmul_rn(weight[i], __fmul_rn(x[i], r));
    }
    rotate<kLanes, kVector>(x, rotation, begin, static_cast<int>(a.rotary.rotary_dim),
                            a.rotary.interleaved, stage);
    if (head >= end || valid <= 0) continue;
    Bf16* target = find_target(a, token, head);
    if (target == nullptr) continue;
    const bool is_value = head >= a.query_heads + a.kv_heads;
    store_chunk<kVector>(target + begin, is_value ? chunk[j] : pack(x), valid);
  }
}

template <int kLanes>
cudaError_t run(ForwardArgs args, int64_t tokens, bool vector, cudaStream_t stream) {
  constexpr int kGroups = kHeadThreads / kLanes;
  args.blocks = static_cast<int>(divide_up(args.heads, kGroups * kRounds));
  const int share = static_cast<int>(divide_up(args.heads, args.blocks));
  const int rounds = static_cast<int>(divide_up(share, kGroups));
  const auto threads = static_cast<int>(divide_up(divide_up(share, rounds) * kLanes, 32) * 32);
  args.heads_per_block = rounds * (threads / kLanes);
  if (tokens * args.blocks > INT_MAX) return cudaErrorInvalidValue;
  auto* kernel =
      vector ? qk_norm_rotary_kernel<kLanes, true> : qk_norm_rotary_kernel<kLanes, false>;
  return launch(kernel, grid_of(tokens * args.blocks), threads, stream, args);
}

}  // namespace

cudaError_t qk_norm_rotary_forward(void* out, const void* in, const void* q_norm,
                                   const void* k_norm, float eps, const RotaryTables& rotary,
                                   const KvPages& pages, const QkvShape& shape,
                                   cudaStream_t stream) {
  if (!is_served(shape, rotary)) return cudaErrorInvalidValue;
  ForwardArgs args{};
  args.out = static_cast<Bf16*>(out);
  args.in = static_cast<const Bf16*>(in);
  args.q_norm = static_cast<const Bf16*>(q_norm);
  args.k_norm = static_cast<const Bf16*>(k_norm);
  args.pages = pages;
  args.rotary = rotary;
  args.query_heads = static_cast<int>(shape.query_heads);
  args.kv_heads = static_cast<int>(shape.kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  const bool values_stay = pages.k == nullptr && out == in;
  args.heads = args.query_heads + (values_stay ? 1 : 2) * args.kv_heads;
  args.eps = eps;
  if (shape.tokens == 0 || args.heads == 0) return cudaSuccess;
  const bool vector = turns_by_chunks(shape, rotary) && is_aligned(out) && is_aligned(in) &&
                      is_aligned(q_norm) && is_aligned(k_norm) && is_aligned(pages.k) &&
                      is_aligned(pages.v);
  return with_lanes(shape.head_dim,
                    [&]<int kLanes>() { return run<kLanes>(args, shape.tokens, vector, stream); });
}

}  // namespace slimexx::kernels
