// The producer of a cluster's thread block (cluster_rows.cu).
#pragma once
#include "kernels/latent_attention/cluster_shared.cuh"
#include "kernels/latent_attention/load.cuh"

namespace slimexx::kernels::latent_attention {

// Run by one warp.
template <int kRows>
__device__ __forceinline__ void load_queries(const CUtensorMap& map, const CUtensorMap& rotary_map,
                                             ClusterShared<kRows> shared, const Item& item) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    arrive_expect_bytes(shared.queries_full(), kBoxes * ClusterShared<kRows>::kWeightBytes);
  }
  __syncwarp();
  if (lane >= kBoxes) return;
  const bool rotary = lane == kValueBoxes;
  load_box_hinted(shared.queries() + lane * ClusterShared<kRows>::kWeightBytes,
                  rotary ? &rotary_map : &map, shared.queries_full(),
                  rotary ? 0 : lane * kBoxColumns, item.row, kEvictNormal);
}

// Run by one warp. Loads the thread block's own key blocks for the scores, and its 64 columns of
// all key blocks as values.
template <int kRows>
struct ClusterLoader {
  const attention::Problem& problem;
  Maps maps;
  ClusterShared<kRows> shared;
  Item item;
  int rank;
  int written_pieces;  // pieces of the sequence readable before the previous kernels end

  // Rows of a block that one TMA load moves: number within the block, first row in the tensor.
  struct Piece {
    int number, row;
    bool exists, is_written;
  };

  __device__ __forceinline__ int pieces() const { return kBlock / problem.box_rows; }
  // Number of pieces of a block that hold keys of the sequence.
  __device__ __forceinline__ int present(int block) const {
    return min(pieces(), divide_up(item.keys - block * kBlock, problem.box_rows));
  }
  __device__ __forceinline__ int find_row(int block, int piece) const {
    const int position = block * kBlock + piece * problem.box_rows;
    if (problem.page_table == nullptr) {
      return (item.row - item.row_in_sequence) / problem.group + position;
    }
    const int32_t page = problem.page_table[item.sequence * problem.page_table_stride +
                                            (position >> problem.page_shift)];
    return (page << problem.page_shift) + (position & ((1 << problem.page_shift) - 1));
  }
  __device__ __forceinline__ Piece find_piece(int block, int piece) const {
    const bool exists = block < item.last_block && piece < present(block);
    return {piece, exists ? find_row(block, piece) : 0, exists,
            block * pieces() + piece < written_pieces};
  }
  // The piece of a key block that this lane loads, and the piece of a round's values.
  __device__ __forceinline__ Piece find_key_piece(int block) const {
    return find_piece(block, static_cast<int>(threadIdx.x) % 32 % pieces());
  }
  __device__ __forceinline__ Piece find_value_piece(int first) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, i = lane / pieces();
    Piece piece = find_piece(first + i, lane % pieces());
    piece.exists = piece.exists && i < kRound;
    return piece;
  }
  __device__ __forceinline__ void load_part(uint32_t to, uint32_t barrier, int box,
                                            const Piece& piece) const {
    const bool rotary = box == kValueBoxes;
    load_box_hinted(to + piece.number * problem.box_rows * 128,
                    rotary ? &maps.key_rotary : &maps.key, barrier, rotary ? 0 : box * kBoxColumns,
                    piece.row, kEvictNormal);
  }

  // Announce the bytes of a key block, and of the values of a round, to their full barriers.
  __device__ __forceinline__ void expect_keys(int block) const {
    if (block < item.last_block && threadIdx.x % 32 == 0) {
      arrive_expect_bytes(shared.keys_full(), kBoxes * present(block) * problem.box_rows * 128);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void expect_values(int first) const {
    const int i = threadIdx.x % 32;
    if (i < kRound && first + i < item.last_block) {
      arrive_expect_bytes(shared.values_full(i), present(first + i) * problem.box_rows * 128);
    }
    __syncwarp();
  }
  // Lanes with the same piece divide its boxes. If `takes` is false, this call loads nothing.
  __device__ __forceinline__ void load_keys(const Piece& piece, bool takes) const {
    if (piece.exists && takes) {
      const int lane = threadIdx.x % 32;
      for (int box = lane / pieces(); box < kBoxes; box += 32 / pieces()) {
        load_part(shared.keys() + box * kBoxBytes, shared.keys_full(), box, piece);
      }
    }
    __syncwarp();
  }
  // Loads this thread block's columns of a round of key blocks.
  __device__ __forceinline__ void load_values(const Piece& piece, bool takes) const {
    if (piece.exists && takes) {
      const int i = static_cast<int>(threadIdx.x) % 32 / pieces();
      load_part(shared.values(i), shared.values_full(i), rank, piece);
    }
    __syncwarp();
  }
};

}  // namespace slimexx::kernels::latent_attention
