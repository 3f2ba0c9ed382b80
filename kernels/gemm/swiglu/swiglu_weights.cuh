// The weights of gate and up, w[2f, k], as one operand whose rows alternate: 8 rows of gate, the 8
// of up that belong to them, the next 8 of gate. Then gate and up of one feature are sums of the
// same thread, whichever operand the weights are: neighbouring groups of 8 columns in plain order,
// rows l / 4 and l / 4 + 8 of a warp's 16 in swapped order.
#pragma once
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"

namespace slimexx::kernels {

constexpr int kPairRows = 16;  // rows of the operand after which the alternation repeats

// A tile whose weights are such an operand.
template <class Tile>
struct GateUpTile : Tile {
  static_assert((Tile::kSwap ? Tile::kRows : Tile::kColumns) % (kPairRows * Tile::kRowCluster) ==
                0);
};
template <class Tile>
inline constexpr bool kIsGateUp = false;
template <class Tile>
inline constexpr bool kIsGateUp<GateUpTile<Tile>> = true;

// A tensor map of boxes with `box_rows` rows (a multiple of 16) of that operand and 64 columns,
// `boxes` of them side by side, with the 128-byte swizzle. f must be a multiple of 8, k of 64, and
// base 16-byte aligned. For several experts w[experts, 2f, k], the operand's rows of an expert
// begin 4f after those of the previous expert, because its gate begins 2f rows after the previous
// gate.
inline bool encode_gate_up(CUtensorMap* map, const void* base, int64_t f, int64_t k, int box_rows,
                           int boxes, int64_t experts = 1) {
  const int64_t groups = (2 * experts - 1) * f / 8;
  return encode_bf16_tensor<5>(map, base, {kBoxColumns, 8, 2, groups, k / kBoxColumns},
                               {k, f * k, 8 * k, kBoxColumns},
                               {kBoxColumns, 8, 2, box_rows / kPairRows, boxes});
}

// The box from row `row` of the operand, a multiple of 16, and from column 64 k_box on.
__device__ __forceinline__ void load_gate_up(uint8_t* dst, const CUtensorMap* map, uint64_t* bar,
                                             int row, int k_box, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %3, %3, %4, %5}], [%2], %6;" ::"r"(shared_address(dst)),
      "l"(map), "r"(shared_address(bar)), "r"(0), "r"(row / kPairRows), "r"(k_box), "l"(policy)
      : "memory");
}

// The same into every block of the cluster whose bit is set in `ranks`.
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
