// Assigns samples to microbatches, and microbatches to ranks. Pure functions of the samples'
// lengths. The microbatches of a step do not depend on the number of ranks, so that gradients can
// agree bit for bit over grids; only the assignment to ranks depends on it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace slimexx::train {

using Bins = std::vector<std::vector<int64_t>>;  // sample or microbatch indices, by bin

// Puts each length, in order, into the first bin with room; a length above the capacity gets a bin
// of its own.
Bins pack_first_fit(std::span<const int64_t> lengths, int64_t capacity);

// Karmarkar-Karp (largest differencing) into k bins of nearly equal weight; with equal_size every
// bin gets the same number of items (their number must be a multiple of k). Indices ascend within a
// bin.
Bins partition_karmarkar_karp(std::span<const double> weights, int64_t k, bool equal_size);

struct PackingOptions {
  bool dynamic = true;        // by tokens; otherwise micro_batch_size samples each
  int64_t max_tokens = 4608;  // of one microbatch
  int64_t micro_batch_size = 1;
};
Bins pack_microbatches(std::span<const int64_t> lengths, const PackingOptions& options);

// Splits `indices` (two or more), in their order, into two parts with about equally many tokens.
Bins split_microbatch(std::span<const int64_t> indices, std::span<const int64_t> lengths);

// Microbatch indices by rank: round robin, or balanced by cost. Ranks may get different numbers of
// microbatches.
Bins assign_microbatches(std::span<const double> costs, int num_ranks, bool balance);

// Adds empty microbatches to `microbatches` until every rank has as many as the rank with the most,
// at least one, and a multiple of `multiple`: a block may be collective, so all ranks must run it
// equally often. Empty ones come first, so that the last backward, which overlaps the gradient
// sums, is a real one.
void even_out(Bins& microbatches, Bins& by_rank, int64_t multiple = 1);

}  // namespace slimexx::train
