// The copies of a cluster's thread block (cluster_rows.cu).
#pragma once
#include "kernels/latent_attention/cluster_shared.cuh"
#include "kernels/latent_attention/load.cuh"

namespace slimexx::kernels::latent_attention {

// Copies blocks of keys, and columns of them; one warp.
template <int kRows>
struct ClusterLoader {
  const attention::Problem& problem;
  Maps maps;
  ClusterShared<kRows> shared;
  Item item;
  int rank;

  __device__ __forceinline__ int pieces() const { return kBlock / problem.box_rows; }
  // Of a block, pieces that hold keys of the sequence.
  __device__ __forceinline__ int present(int block) const {
    return min(pieces(), divide_up(item.keys - block * kBlock, problem.box_rows));
  }
  // Row of a piece in the tensor of keys.
  __device__ __forceinline__ int find_row(int block, int piece) const {
    const int position = block * kBlock + piece * problem.box_rows;
    if (problem.page_table == nullptr) {
      return (item.row - item.row_in_sequence) / problem.group + position;
    }
    const int32_t page = problem.page_table[item.sequence * problem.page_table_stride +
                                            (position >> problem.page_shift)];
    return (page << problem.page_shift) + (position & ((1 << problem.page_shift) - 1));
  }
  __device__ __forceinline__ void load_part(uint32_t to, uint32_t barrier, int box, int piece,
                                            int row) const {
    const bool rotary = box == kValueBoxes;
    load_box_hinted(to + piece * problem.box_rows * 128, rotary ? &maps.key_rotary : &maps.key,
                    barrier, rotary ? 0 : box * kBoxColumns, row, kEvictNormal);
  }

  __device__ __forceinline__ void load_queries() const {
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
      arrive_expect_bytes(shared.queries_full(), kBoxes * ClusterShared<kRows>::kWeightBytes);
    }
    __syncwarp();
    if (lane >= kBoxes) return;
    const bool rotary = lane == kValueBoxes;
    load_box_hinted(shared.queries() + lane * ClusterShared<kRows>::kWeightBytes,
                    rotary ? &maps.query_rotary : &maps.query, shared.queries_full(),
                    rotary ? 0 : lane * kBoxColumns, item.row, kEvictNormal);
  }

  // All of a block, a barrier for each box.
  __device__ __forceinline__ void load_keys(int block) const {
    if (block >= item.last_block) return;
    const int lane = threadIdx.x % 32, own = present(block), piece = lane % pieces();
    const int row = piece < own ? find_row(block, piece) : 0;
    if (lane < kBoxes) arrive_expect_bytes(shared.keys_full(lane), own * problem.box_rows * 128);
    __syncwarp();
    for (int box = lane / pieces(); piece < own && box < kBoxes; box += 32 / pieces()) {
      load_part(shared.keys() + box * kBoxBytes, shared.keys_full(box), box, piece, row);
    }
    __syncwarp();
  }

  // This thread block's columns of a round of blocks, those in [from, to).
  __device__ __forceinline__ void load_values(int first, int from, int to) const {
    const int lane = threadIdx.x % 32, i = lane / pieces(), piece = lane % pieces();
    const int block = first + i;
    const bool exists = i < kRound && block >= from && block < to;
    const int own = exists ? present(block) : 0;
    if (exists && piece == 0) {
      arrive_expect_bytes(shared.values_full(i), own * problem.box_rows * 128);
    }
    __syncwarp();
    if (piece < own) {
      load_part(shared.values(i), shared.values_full(i), rank, piece, find_row(block, piece));
    }
    __syncwarp();
  }
};

}  // namespace slimexx::kernels::latent_attention
