// The weights of gate and up, w[2f, k], as one operand with alternating rows: 8 rows of gate, the
// matching 8 rows of up, the next 8 of gate, and so on. The sums of gate and up of a feature are
// then in the same thread for both operand orders: in neighbouring groups of 8 columns in plain
// order, in rows l / 4 and l / 4 + 8 of a warp's 16 rows in swapped order.
#pragma once
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"

namespace slimexx::kernels {

constexpr int kPairRows = 16;  // operand rows after which the pattern repeats

// A tile whose weight operand has alternating rows of gate and up.
template <class Tile>
struct GateUpTile : Tile {
  static_assert((Tile::kSwap ? Tile::kRows : Tile::kColumns) % (kPairRows * Tile::kRowCluster) ==
                0);
};
template <class Tile>
inline constexpr bool kIsGateUp = false;
template <class Tile>
inline constexpr bool kIsGateUp<GateUpTile<Tile>> = true;

// Encodes copies of `boxes` consecutive boxes of `box_rows` operand rows (a multiple of 16) x 64
// columns with the 128-byte swizzle. f must be a multiple of 8, k of 64, base 16-byte aligned. For
// several experts, w[experts, 2f, k], the operand's rows of expert e start at 4f e: gates of
// consecutive experts are 2f weight rows apart, and every 8 of these rows begin 16 operand rows.
inline bool encode_gate_up(CUtensorMap* map, const void* base, int64_t f, int64_t k, int box_rows,
                           int boxes, int64_t experts = 1) {
  const int64_t groups = (2 * experts - 1) * f / 8;
  return encode_bf16_tensor<5>(map, base, {kBoxColumns, 8, 2, groups, k / kBoxColumns},
                               {k, f * k, 8 * k, kBoxColumns},
                               {kBoxColumns, 8, 2, box_rows / kPairRows, boxes});
}

// Loads the box that starts at operand row `row` (a multiple of 16) and column 64 k_box.
__device__ __forceinline__ void load_gate_up(uint8_t* dst, const CUtensorMap* map, uint64_t* bar,
                                             int row, int k_box, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %3, %3, %4, %5}], [%2], %6;" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(bar)), "r"(0), "r"(row / kPairRows), "r"(k_box), "l"(policy)
      : "memory");
}

// load_gate_up into every block of the cluster whose bit is set in `ranks`.
__device__ __forceinline__ void load_gate_up_multicast(uint8_t* dst, const CUtensorMap* map,
                                                       uint64_t* bar, int row, int k_box,
                                                       uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(shared_address(dst)),
      "l"(map), "r"(0), "r"(row / kPairRows), "r"(k_box), "r"(shared_address(bar)), "h"(ranks)
      : "memory");
}

}  // namespace slimexx::kernels
