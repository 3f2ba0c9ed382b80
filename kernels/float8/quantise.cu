// Quantises activations and weights to e4m3: scales by the functions that the CPU uses, roundings
// by the hardware.
#include <cuda_bf16.h>

#include <climits>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/float8/quantise_group.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpItems = 2;  // in flight at the same time

struct RowsProblem {
  const __nv_bfloat16* x;
  uint8_t* q;
  float* scales;
  int64_t x_stride, scale_stride, k, items;
  int groups, m;  // groups of columns per row
};

// An item is a group of columns of kWarpGroups rows; neighbouring items are neighbouring groups.
__global__ void __launch_bounds__(kThreads) quantise_rows(const RowsProblem p) {
  enter_kernel();
  const int lane = threadIdx.x % 32;
  const int64_t warp = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  Elements e[kWarpItems];
  int64_t rows[kWarpItems];
  int groups[kWarpItems];
#pragma unroll
  for (int i = 0; i < kWarpItems; ++i) {
    const int64_t item = warp * kWarpItems + i;
    const int64_t row_item = item / p.groups;
    rows[i] = item < p.items ? row_item * kWarpGroups + lane / kGroupLanes : INT64_MAX;
    groups[i] = static_cast<int>(item - row_item * p.groups);
    if (rows[i] >= p.m) continue;
    const __nv_bfloat16* from =
        p.x + rows[i] * p.x_stride + groups[i] * 128 + lane % kGroupLanes * kLaneElements;
    e[i].half[0] = *reinterpret_cast<const uint4*>(from);
    e[i].half[1] = *reinterpret_cast<const uint4*>(from + 8);
  }
#pragma unroll
  for (int i = 0; i < kWarpItems; ++i) {
    const bool inside = rows[i] < p.m;
    float scale;
    const uint4 q = quantise_group(inside ? e[i] : Elements{}, scale);
    if (!inside) continue;
    if (lane % kGroupLanes == 0) p.scales[groups[i] * p.scale_stride + rows[i]] = scale;
    *reinterpret_cast<uint4*>(p.q + rows[i] * p.k + groups[i] * 128 +
                              lane % kGroupLanes * kLaneElements) = q;
  }
}

constexpr int kBlockRows = 2 * kFp8UnitRows;
constexpr int kBlockSteps =
    kBlockRows * kGroupLanes / kThreads;  // pieces of 16 elements per thread

// The largest of all threads' numbers.
__device__ __forceinline__ uint32_t largest_in_block(uint32_t most) {
  __shared__ uint32_t of_warps[kThreads / 32];
  most = __reduce_max_sync(0xffffffff, most);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
  return __reduce_max_sync(0xffffffff, of_warps[threadIdx.x % (kThreads / 32)]);
}

// Divides by the scale. If the scale is a power of two, multiplying by its inverse gives the same
// bits.
struct Divisor {
  float scale, inverse;
  bool exact;
  __device__ __forceinline__ float operator()(float x) const {
    return exact ? __fmul_rn(x, inverse) : __fdiv_rn(x, scale);
  }
};

// Quantises 16 values: `q` gets their e4m3 bytes, `rounded` the values of these bytes in bf16.
__device__ __forceinline__ void quantise_piece(const Elements& e, const Divisor& divide,
                                               uint32_t (&q)[4], uint32_t (&rounded)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = pack_f8(divide(widen_low(e.pair(i))), divide(widen_high(e.pair(i))));
    q[i / 2] = i % 2 == 0 ? pair : q[i / 2] | pair << 16;
    const float2 value = widen_f8(pair);
    rounded[i] = pack_bf16(__fmul_rn(value.x, divide.scale), __fmul_rn(value.y, divide.scale));
  }
}

__device__ __forceinline__ int count_different_bytes(uint32_t a, uint32_t b) {
  return 4 - __popc(__vcmpeq4(a, b)) / 8;
}

// A thread block takes 128 columns of one block of weights. The first half of the threads' pieces
// belongs to the first unit.
__global__ void __launch_bounds__(kThreads) quantise_blocks(const QuantiseBlocksArgs a) {
  const int64_t groups = a.k / kFp8GroupColumns, units = a.rows / kFp8UnitRows;
  const int64_t block = blockIdx.x / groups, group = blockIdx.x - block * groups;
  int64_t unit[2] = {2 * block, 2 * block + 1 < units ? 2 * block + 1 : -1};
  if (a.units != nullptr) {
    unit[0] = a.units[2 * block];
    unit[1] = a.units[2 * block + 1];
  }
  Elements e[kBlockSteps];
  int64_t at[kBlockSteps];
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kBlockSteps; ++i) {
    const int row = i * (kThreads / kGroupLanes) + threadIdx.x / kGroupLanes;
    const int64_t own = unit[i / (kBlockSteps / 2)];
    at[i] = own < 0 ? -1
                    : (own * kFp8UnitRows + row % kFp8UnitRows) * a.k + group * kFp8GroupColumns +
                          threadIdx.x % kGroupLanes * kLaneElements;
    if (at[i] < 0) continue;
    const uint4* from =
        reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.w) + at[i]);
    e[i].half[0] = from[0];
    e[i].half[1] = from[1];
    most = max(most, largest_magnitude(e[i]));
  }
  const float scale = tensor::f8_scale(__uint_as_float(largest_in_block(most)), a.rule);
  if (threadIdx.x < 2 && unit[threadIdx.x] >= 0) {
    a.scales[unit[threadIdx.x] * groups + group] = scale;
  }
  const Divisor divide{scale, __fdiv_rn(1.0f, scale), a.rule == tensor::F8ScaleRule::kPowerOfTwo};
  int changed = 0;
#pragma unroll
  for (int i = 0; i < kBlockSteps; ++i) {
    if (at[i] < 0) continue;
    uint32_t q[4], rounded[8];
    quantise_piece(e[i], divide, q, rounded);
    uint4* to = reinterpret_cast<uint4*>(static_cast<uint8_t*>(a.q) + at[i]);
    if (a.changed != nullptr) {
      const uint4 old = *to;
      changed += count_different_bytes(old.x, q[0]) + count_different_bytes(old.y, q[1]) +
                 count_different_bytes(old.z, q[2]) + count_different_bytes(old.w, q[3]);
    }
    *to = make_uint4(q[0], q[1], q[2], q[3]);
    if (a.rounded == nullptr) continue;
    uint4* plain = reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(a.rounded) + at[i]);
    plain[0] = make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]);
    plain[1] = make_uint4(rounded[4], rounded[5], rounded[6], rounded[7]);
  }
  if (a.changed == nullptr) return;
  changed = __reduce_add_sync(0xffffffff, changed);
  if (threadIdx.x % 32 == 0 && changed != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(a.changed),
              static_cast<unsigned long long>(changed));
  }
}

const char* text_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_quantise_rows(const QuantiseRowsArgs& args, cudaStream_t stream) {
  if (args.m < 0 || args.m > INT_MAX / 2) return "quantise_rows: m must be at least 0 and < 2^30";
  if (args.k <= 0 || args.k > INT_MAX / 2 || args.k % kFp8GroupColumns != 0) {
    return "quantise_rows: k must be a multiple of 128, from 128 to 2^30";
  }
  const int64_t scale_stride =
      args.scale_stride == 0 ? fp8_scale_stride(args.m) : args.scale_stride;
  const int64_t x_stride = args.x_stride == 0 ? args.k : args.x_stride;
  if (scale_stride < args.m) return "quantise_rows: scale_stride must be 0 or at least m";
  if (x_stride < args.k) return "quantise_rows: x_stride must be 0 or at least k";
  if (args.m == 0) return nullptr;
  if (!is_given(args.x, x_stride))
    return "quantise_rows: rows of x must be 16-byte aligned and not null";
  if (!is_given(args.q)) return "quantise_rows: q must be 16-byte aligned and not null";
  if (args.scales == nullptr) return "quantise_rows: scales are null";
  const int64_t groups = args.k / kFp8GroupColumns;
  const int64_t items = divide_up(args.m, int64_t{kWarpGroups}) * groups;
  const int64_t blocks = divide_up(items, int64_t{kWarpItems * (kThreads / 32)});
  if (blocks > INT_MAX) return "quantise_rows: x is too large";
  const RowsProblem problem{static_cast<const __nv_bfloat16*>(args.x),
                            static_cast<uint8_t*>(args.q),
                            args.scales,
                            x_stride,
                            scale_stride,
                            args.k,
                            items,
                            static_cast<int>(groups),
                            static_cast<int>(args.m)};
  return text_of(launch_early(quantise_rows, {dim3(static_cast<unsigned>(blocks)), kThreads},
                              stream, problem));
}

const char* launch_quantise_blocks(const QuantiseBlocksArgs& args, cudaStream_t stream) {
  if (args.rows <= 0 || args.rows % kFp8UnitRows != 0) {
    return "quantise_blocks: rows must be a multiple of 64, at least 64";
  }
  if (args.k <= 0 || args.k % kFp8GroupColumns != 0) {
    return "quantise_blocks: k must be a multiple of 128, at least 128";
  }
  if (!is_given(args.w) || !is_given(args.q) || !is_aligned(args.rounded, 16)) {
    return "quantise_blocks: w and q must not be null; w, rounded and q must be 16-byte aligned";
  }
  if (args.scales == nullptr) return "quantise_blocks: scales are null";
  if (args.units != nullptr && args.num_blocks < 0) {
    return "quantise_blocks: num_blocks must be at least 0";
  }
  const int64_t num_blocks =
      args.units == nullptr ? divide_up(args.rows, int64_t{kBlockRows}) : args.num_blocks;
  const int64_t grid = num_blocks * (args.k / kFp8GroupColumns);
  if (grid > INT_MAX) return "quantise_blocks: w is too large";
  if (grid == 0) return nullptr;
  quantise_blocks<<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(args);
  return text_of(cudaGetLastError());
}

}  // namespace slimexx::kernels
