// Names for configurations, so that a list of them reads as tiles: output rows x columns.
#pragma once
#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

// A tile of `rows` tokens x `columns` features, with 64 rows per warpgroup.
constexpr GemmConfig plain_tile(int rows, int columns) {
  GemmConfig c;
  c.rows = rows;
  c.columns = columns;
  c.band = 16;
  return c;
}

// Tile of up to `rows` features x `columns` tokens (swap AB).
constexpr GemmConfig swapped_tile(int rows, int columns) {
  GemmConfig c;
  c.swap_operands = true;
  c.rows = rows;
  c.columns = columns;
  return c;
}

constexpr GemmConfig in_cluster(GemmConfig c, int blocks) {
  c.cluster = blocks;
  return c;
}

constexpr GemmConfig two_per_sm(GemmConfig c) {
  c.blocks_per_sm = 2;
  return c;
}

// The first warpgroup runs `lead` K blocks ahead of the second.
constexpr GemmConfig staggered(GemmConfig c, int lead) {
  c.lead = lead;
  return c;
}

// Tile of 128 x `columns` in a cluster of two. The two warpgroups compute alternate tiles.
constexpr GemmConfig ping_pong_tile(int columns) {
  GemmConfig c = in_cluster(plain_tile(128, columns), 2);
  c.ping_pong = true;
  return c;
}

}  // namespace slimexx::kernels
