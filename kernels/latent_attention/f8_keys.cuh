// FP8 keys in registers: how a warp loads rows of bytes (tensor::F8LatentRow), dequantises them,
// and stores them in the layout that TMA would give a block of bf16 rows.
//
// A warp has 16 rows of a block, in groups of four. One instruction loads all 512 values of a row:
// lane l has 16 of the 64 columns of box l / 4. Another one loads the rotary parts of a group, and
// a third one its scales.
#pragma once
#include "kernels/common/f8_chunk.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/latent_attention/launch.cuh"

namespace slimexx::kernels::latent_attention {

inline constexpr int kF8Warps = 4, kWarpKeys = kBlock / kF8Warps;
inline constexpr int kGroupKeys = 4, kKeyGroups = kWarpKeys / kGroupKeys;
static_assert(kValues == 32 * 16, "an instruction loads a row's values");
static_assert(kMostLatentValues <= 4 * kF8Group, "an instruction loads four scales of four rows");

// The place of a position of a paged sequence: its page, and its row in the tensor of keys.
__device__ __forceinline__ int read_page(const attention::Problem& p, int sequence, int position) {
  return p.page_table[sequence * p.page_table_stride + (position >> p.page_shift)];
}
__device__ __forceinline__ int row_in_page(const attention::Problem& p, int page, int position) {
  return (page << p.page_shift) + (position & ((1 << p.page_shift) - 1));
}

// kGroups groups of a warp's rows. Columns that do not exist stay zeros.
template <int kGroups>
struct F8Rows {
  struct Group {
    uint4 values[kGroupKeys] = {};
    uint4 rotary = {};  // chunk lane % 8 of row lane / 8
    float scale = 0;    // scale lane % 4 of row lane / 4, for 16 lanes
  };
  Group groups[kGroups];

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  // Loads groups from `first` on. `row`: lane i has the number of the warp's row i % 16 in the
  // tensor of keys. kMasked: rows below 0 keep their values; otherwise there are none.
  template <bool kMasked = false>
  __device__ __forceinline__ void load(const F8Keys& keys, int first, int row) {
    const auto load_part = [&](auto& to, int of_lane, bool has_column, int offset) {
      const int own = __shfl_sync(0xffffffffu, row, of_lane);
      const bool exists = has_column && (!kMasked || own >= 0);
      load_if(to, exists, keys.rows + offset + uint64_t{static_cast<uint32_t>(own)} * keys.stride);
    };
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      Group& to = groups[g];
      const int at = (first + g) * kGroupKeys;
#pragma unroll
      for (int i = 0; i < kGroupKeys; ++i) {
        load_part(to.values[i], at + i, lane() * 16 < keys.value_dim, lane() * 16);
      }
      load_part(to.rotary, at + lane() / 8, lane() % 8 * 8 < keys.rotary_dim,
                keys.rotary_at + lane() % 8 * 16);
      load_part(to.scale, at + lane() / 4 % kGroupKeys, lane() % 4 * kF8Group < keys.value_dim,
                keys.scales_at + lane() % 4 * 4);
    }
  }

  // Lanes of neighbouring boxes store their two chunks in opposite order, so that eight lanes use
  // all banks. This turns the lane's values accordingly. It waits for the loads: the next loads
  // must not be issued before, because the hardware counts all loads in flight together.
  __device__ __forceinline__ F8Rows turned() const {
    const int turn = lane() / 4 % 2;
    F8Rows result = *this;
#pragma unroll
    for (Group& group : result.groups) {
#pragma unroll
      for (uint4& x : group.values) x = turn_halves(x, turn);
      asm volatile("" : "+r"(group.rotary.x), "+f"(group.scale));
    }
    return result;
  }

  // Stores rows that are turned, from group `first` on. `rows`: address of the
  // warp's first row in box 0, a multiple of 1024.
  __device__ __forceinline__ void store(int first, uint32_t rows) const {
    const int box = lane() / 4;
    // The chunk in row 4 `first`; in another row its bits differ by those of the row's number.
    const uint32_t to =
        rows + box * kBoxBytes + ((lane() % 4 * 2 + box % 2) ^ (first * kGroupKeys % 8)) * 16;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const Group& from = groups[g];
      const int at = (first + g) * kGroupKeys;
      const uint32_t scales = pair_of(from.scale);
#pragma unroll
      for (int i = 0; i < kGroupKeys; ++i) {
        const uint4& x = from.values[i];
        const uint32_t scale = __shfl_sync(0xffffffffu, scales, i * 4 + lane() / (kF8Group / 16));
        const uint32_t chunk = (to ^ ((g * kGroupKeys + i) % 8 * 16)) + (at + i) * 128;
        store_chunk(chunk, dequantise_chunk(x.x, x.y, scale));
        store_chunk(chunk ^ 16, dequantise_chunk(x.z, x.w, scale));
      }
      store_chunk(rows + kValueBoxes * kBoxBytes + swizzled_offset(at + lane() / 8, lane() % 8),
                  from.rotary);
    }
  }
};

}  // namespace slimexx::kernels::latent_attention
