// Applies RMSNorm and rotation to query and key heads, and stores keys and values in the KV pages
// if there are any. A lane processes one head for all tokens of its block's part. The next token's
// elements are loaded while the lane works on the current one.
#include "kernels/rows/head_tiles.cuh"
#include "kernels/rows/quantise_head.cuh"

namespace slimexx::kernels {
namespace {

using namespace rows;

// The work on a head. kRotateBack rotates by the negative angle.
enum Work { kNormAndRotate, kRotate, kRotateBack };

// Resident blocks (of 5 warps) and resident warps per multiprocessor, at 72 registers per thread
// with norms and 64 without; with FP8, 96 and 72.
template <Work kWork, bool kFp8>
constexpr int kResidentBlocks = (kWork == kNormAndRotate ? 5 : 6) - (kFp8 ? 1 : 0);
template <Work kWork, bool kFp8>
constexpr int64_t kResidentWarps = kFp8                      ? 5 * kResidentBlocks<kWork, kFp8>
                                   : kWork == kNormAndRotate ? 28
                                                             : 32;

struct ForwardArgs {
  Bf16 *out, *in;
  const Bf16 *q_norm, *k_norm;
  KvPages pages;
  int page_shift;  // FP8 pages: log2 of page_tokens
  RotaryTables rotary;
  int64_t tokens;
  int query_heads, kv_heads, head_dim;
  int in_row, out_row;   // elements per token
  int heads;             // heads to write; excludes value heads that do not change
  bool values_in_place;  // value heads are written to `in`
  int tile_heads;
  float inverse_dim, eps;
};

// The head that a lane processes: values that are the same for all tokens.
struct Head {
  int index;
  bool exists, is_value, has_norm, is_paged;
  Bf16* target;  // this head in token 0 of `out` or `in`, or in slot 0 of the pages
  int target_pitch;
  uint8_t* bytes;    // FP8 pages: the head in slot 0
  uint16_t* scales;  // FP8 pages: the head's scales in page 0
};

template <bool kFp8>
__device__ __forceinline__ Head find_head(const ForwardArgs& a, int group) {
  Head h{};
  h.index = static_cast<int>(blockIdx.y) * a.tile_heads + group;
  h.exists = group < a.tile_heads && h.index < a.heads;
  const int values = a.query_heads + a.kv_heads;
  const bool is_query = h.index < a.query_heads;
  h.is_value = h.index >= values;
  h.has_norm = !h.is_value && (is_query ? a.q_norm : a.k_norm) != nullptr;
  h.is_paged = !is_query && a.pages.k != nullptr;
  if (h.is_paged) {
    const int own = h.index - (h.is_value ? values : a.query_heads);
    void* pages = h.is_value ? a.pages.v : a.pages.k;
    h.target_pitch = a.kv_heads * a.head_dim;
    if constexpr (kFp8) {
      void* scales = h.is_value ? a.pages.v_scales : a.pages.k_scales;
      h.bytes = static_cast<uint8_t*>(pages) + own * a.head_dim;
      h.scales = static_cast<uint16_t*>(scales) + (int64_t{own} << a.page_shift);
    } else {
      h.target = static_cast<Bf16*>(pages) + own * a.head_dim;
    }
  } else {
    const bool to_in = kFp8 && h.is_value && a.values_in_place;
    h.target = (to_in ? a.in : a.out) + int64_t{h.index} * a.head_dim;
    h.target_pitch = to_in ? a.in_row : a.out_row;
  }
  return h;
}

// Offset of a slot's scale in the FP8 pages of a head.
__device__ __forceinline__ int64_t find_scale(const ForwardArgs& a, int slot) {
  const int64_t page = slot >> a.page_shift;
  return (page * a.kv_heads << a.page_shift) + (slot & ((1 << a.page_shift) - 1));
}

// Returns the elements to store. All lanes of the warp must call, also those without a head.
template <int kLanes, HeadMode kMode, Work kWork>
__device__ __forceinline__ HeadPart rotate_head(const ForwardArgs& a, const Head& head,
                                                const HeadPart& raw, const HeadPart& norm,
                                                const LanePlace& place, int position,
                                                float* stage) {
  const auto rotation = load_rotation<kMode>(a.rotary, position, place);
  float x[kPart];
  unpack(x, raw);
  if constexpr (kWork == kNormAndRotate) {
    const LaneSums sums = sum_products<kMode>(x, x, place);
    float both[2] = {sums.first, sums.second};
    sum_over_head<kLanes>(both);
    if (head.has_norm) {
      const float r = inverse_rms(__fadd_rn(both[0], both[1]), a.inverse_dim, a.eps);
      float weight[kPart];
      unpack(weight, norm);
#pragma unroll
      for (int i = 0; i < kPart; ++i) x[i] = __fmul_rn(weight[i], __fmul_rn(x[i], r));
    }
  }
  rotate<kLanes, kMode, kWork == kRotateBack>(x, rotation, a.rotary, place, stage);
  return pack(x);
}

template <int kLanes, HeadMode kMode, Work kWork, bool kFp8>
__global__ void __launch_bounds__(kTileThreads, kResidentBlocks<kWork, kFp8>)
    qk_norm_rotary_kernel(const __grid_constant__ ForwardArgs a) {
  enter_layer_kernel();
  __shared__ float stage[kMode == kOneByOne ? kTileThreads * kPart : 1];
  const auto end = static_cast<int>(part_begin(blockIdx.x + int64_t{1}, gridDim.x, a.tokens));
  auto token = static_cast<int>(part_begin(blockIdx.x, gridDim.x, a.tokens));
  const Head head = find_head<kFp8>(a, static_cast<int>(threadIdx.x) / kLanes);
  const LanePlace place = find_place(a.rotary, static_cast<int>(threadIdx.x) % kLanes, a.head_dim);
  const bool only_values = __all_sync(0xffffffffu, head.is_value || !head.exists);
  if (__all_sync(0xffffffffu, !head.exists)) return;
  const bool rotates = a.rotary.rotary_dim > 0 && !only_values;
  const Bf16* in = a.in + int64_t{token} * a.in_row + int64_t{head.index} * a.head_dim;
  HeadPart next{};
  if (head.exists) next = load_part<kMode>(in, place, a.head_dim);
  int next_position = rotates ? a.rotary.positions[token] : 0;
  HeadPart norm{};
  if (kWork == kNormAndRotate && head.exists && head.has_norm) {
    norm = load_part<kMode>(head.index < a.query_heads ? a.q_norm : a.k_norm, place, a.head_dim);
  }
  for (; token < end; ++token) {
    HeadPart part = next;
    const int position = next_position;
    const Bf16* raw = in;
    in += a.in_row;
    if (token + 1 < end) {
      if (head.exists) next = load_part<kMode>(in, place, a.head_dim);
      if (rotates) next_position = a.rotary.positions[token + 1];
    }
    const int row = head.is_paged ? a.pages.slots[token] : token;
    if (!only_values) {
      if constexpr (kWork == kNormAndRotate) forget(norm);
      part = rotate_head<kLanes, kMode, kWork>(a, head, part, norm, place, position, stage);
      // A value head that shares a warp with rotated heads is loaded again: keeping it would take
      // registers in every lane.
      if (head.is_value && head.exists) part = load_part<kMode>(raw, place, a.head_dim);
    }
    if constexpr (kFp8) {
      const F8Part rounded = quantise_part<kLanes>(part);
      if (head.is_paged) {
        if (head.exists && row >= 0) {
          store_part<kMode>(head.bytes + int64_t{row} * head.target_pitch, rounded, place,
                            a.head_dim);
          if (place.low == 0)
            head.scales[find_scale(a, row)] = static_cast<uint16_t>(rounded.scale);
        }
        continue;
      }
      if (head.index >= a.query_heads) part = dequantise_part(rounded);
    }
    if (head.exists && row >= 0) {
      store_part<kMode>(head.target + int64_t{row} * head.target_pitch, part, place, a.head_dim);
    }
  }
}

template <int kLanes, HeadMode kMode, Work kWork, bool kFp8 = false>
cudaError_t run(ForwardArgs& args, cudaStream_t stream) {
  const HeadTiles t =
      choose_head_tiles(args.tokens, args.heads, kLanes, kResidentWarps<kWork, kFp8>);
  args.tile_heads = t.tile_heads;
  const dim3 grid(static_cast<unsigned>(t.parts), static_cast<unsigned>(t.tiles));
  return launch(qk_norm_rotary_kernel<kLanes, kMode, kWork, kFp8>, grid, t.threads, stream, args);
}

bool is_given(const KvPages& pages) {
  const int64_t page = pages.page_tokens;
  return pages.k_scales != nullptr && pages.v_scales != nullptr && page > 0 &&
         (page & (page - 1)) == 0;
}

}  // namespace

cudaError_t qk_norm_rotary_forward(void* out, int64_t out_heads, void* in, const void* q_norm,
                                   const void* k_norm, float eps, const RotaryTables& rotary,
                                   const KvPages& pages, const QkvShape& shape,
                                   cudaStream_t stream) {
  const int64_t in_heads = shape.query_heads + 2 * shape.kv_heads;
  const bool takes_values = out_heads == in_heads;
  if (!is_served(shape, rotary) ||
      !(takes_values || (out_heads == in_heads - shape.kv_heads && out != in))) {
    return cudaErrorInvalidValue;
  }
  const bool paged = pages.k != nullptr;
  if (pages.round_f8 && paged && !is_given(pages)) return cudaErrorInvalidValue;
  const bool values_stay = !paged && !pages.round_f8 && (out == in || !takes_values);
  const int64_t heads = in_heads - (values_stay ? shape.kv_heads : 0);
  if (shape.tokens == 0 || heads == 0) return cudaSuccess;
  ForwardArgs args{};
  args.out = static_cast<Bf16*>(out);
  args.in = static_cast<Bf16*>(in);
  args.q_norm = static_cast<const Bf16*>(q_norm);
  args.k_norm = static_cast<const Bf16*>(k_norm);
  args.pages = pages;
  args.page_shift = log2_of(pages.page_tokens);
  args.values_in_place = !takes_values;
  args.rotary = rotary;
  args.tokens = shape.tokens;
  args.query_heads = static_cast<int>(shape.query_heads);
  args.kv_heads = static_cast<int>(shape.kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  args.in_row = static_cast<int>(in_heads * shape.head_dim);
  args.out_row = static_cast<int>(out_heads * shape.head_dim);
  args.heads = static_cast<int>(heads);
  args.inverse_dim = 1.0f / static_cast<float>(shape.head_dim);
  args.eps = eps;
  const bool has_norm = q_norm != nullptr || k_norm != nullptr;
  const bool aligned = has_aligned_rows(out) && has_aligned_rows(in) && has_aligned_rows(q_norm) &&
                       has_aligned_rows(k_norm) && has_aligned_rows(pages.k) &&
                       has_aligned_rows(pages.v);
  return with_lanes(shape.head_dim, choose_mode(shape, rotary, aligned),
                    [&]<int kLanes, HeadMode kMode>() {
                      if (pages.round_f8) {
                        return has_norm ? run<kLanes, kMode, kNormAndRotate, true>(args, stream)
                                        : run<kLanes, kMode, kRotate, true>(args, stream);
                      }
                      return has_norm ? run<kLanes, kMode, kNormAndRotate>(args, stream)
                                      : run<kLanes, kMode, kRotate>(args, stream);
                    });
}

cudaError_t rows::rotate_back(void* d, const RotaryTables& rotary, const QkvShape& shape,
                              cudaStream_t stream) {
  ForwardArgs args{};
  args.out = static_cast<Bf16*>(d);
  args.in = args.out;
  args.rotary = rotary;
  args.tokens = shape.tokens;
  args.query_heads = static_cast<int>(shape.query_heads);
  args.kv_heads = static_cast<int>(shape.kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  args.heads = args.query_heads + args.kv_heads;
  args.in_row = static_cast<int>((shape.query_heads + 2 * shape.kv_heads) * shape.head_dim);
  args.out_row = args.in_row;
  return with_lanes(
      shape.head_dim, choose_mode(shape, rotary, has_aligned_rows(d)),
      [&]<int kLanes, HeadMode kMode>() { return run<kLanes, kMode, kRotateBack>(args, stream); });
}

}  // namespace slimexx::kernels
