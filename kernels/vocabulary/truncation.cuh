// Samples the token of a row truncated by top_k, top_p and min_p. One block processes a row; if
// there are few rows, a cluster of blocks shares the row's tiles, and all its blocks get the same
// result.
//
//   1. lowest_key gives a lower bound for the keys of kept tokens, which rules out most tiles.
//      Candidates are the tokens with keys from this bound on. They are counted and weighed in bins
//      of equal width in z, and listed in shared memory if they fit.
//   2. The bin in which top_k's count or top_p's mass is reached is ordered exactly: sorted in
//      shared memory or, if it has too many tokens, refined by histograms of their keys and ids.
//   3. The kept tokens are weighed by id; the uniform number picks a bin of 128 ids, then one id.
// Steps 1 and 3 read the tiles or the list once each, step 2 once for each bin that it sorts.
#pragma once
#include "kernels/vocabulary/candidate_bins.cuh"
#include "kernels/vocabulary/row_sampler.cuh"

namespace slimexx::kernels::vocabulary {

template <int kCluster>
class Truncation {
 public:
  __device__ Truncation(TruncationMemory& memory, RowMemory& row_memory, const SampledRow& row)
      : memory_(memory),
        row_memory_(row_memory),
        parameters_(row_memory.parameters),
        row_(row),
        maximum_(row.maximum) {}

  // Every block of the cluster gets the token.
  __device__ int pick(uint64_t* candidates, KeptSet& kept) {
    uint64_t masses[2];
    weigh_tiles(row_memory_, row_, masses);
    scan_block(masses[0] + masses[1], row_memory_.warps[0], kept.total);
    kept.min_weight = fminf(fmaxf(parameters_.min_p, 0.0f), 1.0f);
    CandidateBins<kCluster> bins(memory_, candidates, list_tiles(lowest_key(kept)), maximum_);
    const bool has_top_k = row_.has_top_k(parameters_);
    if (has_top_k || parameters_.top_p < 1.0f) bins.fill();
    uint64_t mass = kept.total;
    if (has_top_k) mass = bins.keep(kept, false, static_cast<uint64_t>(parameters_.top_k));
    if (parameters_.top_p < 1.0f) {
      const double goal = ceil(static_cast<double>(parameters_.top_p) * static_cast<double>(mass));
      bins.keep(kept, true, goal < 1.0 ? 1 : static_cast<uint64_t>(goal));
    }
    return pick_kept(bins, kept);
  }

 private:
  // A lower bound for the keys of kept tokens. With top_k: the k-th largest tile maximum, because
  // at least k tokens reach it. With top_p alone: the last kept token and all lighter ones hold
  // more than 1 - top_p of the mass, so the last kept token has at least 1 / columns of that mass.
  // The factors leave room for the rounding errors of exp, log and the tiles' sums. If 1 - top_p is
  // as small as these errors, the bound is 0: no tile is skipped.
  __device__ uint32_t lowest_key(const KeptSet& kept) {
    const SamplingParameters& p = parameters_;
    if (row_.has_top_k(p)) {
      return p.top_k > row_.tiles ? 0 : bound_of_largest(static_cast<uint64_t>(p.top_k));
    }
    float weight = 0.9f * kept.min_weight;
    if (p.top_p < 1.0f) {  // top_p counts tokens that min_p removes later, so min_p gives no bound
      const double rest = 1.0 - static_cast<double>(p.top_p);
      if (rest < 1e-5) return 0;
      const double total = static_cast<double>(kept.total) / static_cast<double>(kMassUnit);
      weight = static_cast<float>(fmin(0.5, 0.5 * rest * total / row_.columns));
    }
    if (weight < 0x1p-120f) return 0;
    return key_of(__fadd_rn(maximum_, fixed_log(weight)) - 1e-6f * fabsf(maximum_));
  }

  // A lower bound for the key of the k-th largest tile maximum. The bound comes from a histogram of
  // the tile maxima's keys, from key_of(maximum) down to key_of(maximum - 40). Every block of a
  // cluster computes the whole histogram.
  __device__ uint32_t bound_of_largest(uint64_t k) {
    const uint32_t highest = key_of(maximum_);
    const uint32_t range = highest - key_of(__fadd_rn(maximum_, -40.0f));
    const int shift = max(0, 32 - __clz(static_cast<int>(range)) - kBinBits);
    memory_.histogram.clear();
    for (int t = static_cast<int>(threadIdx.x); t < row_.tiles; t += kSamplingThreads) {
      const uint32_t bin = (highest - key_of(row_memory_.maxima[t])) >> shift;
      if (bin < kBins) atomicAdd(&memory_.histogram.count[bin], 1u);
    }
    const BinScan scan = memory_.histogram.join_and_scan<1>();
    const Found found = memory_.histogram.find(scan, false, k);
    if (found.bin < 0) return 0;
    const uint32_t below = ((static_cast<uint32_t>(found.bin) + 1) << shift) - 1;
    return below < highest ? highest - below : 0;
  }

  // Lists this block's share of the tiles that hold candidates.
  __device__ TiledRow list_tiles(uint32_t lowest) {
    const int rank = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
    if (threadIdx.x == 0) memory_.tile_count = memory_.candidate_count = 0;
    __syncthreads();
    for (int t = static_cast<int>(threadIdx.x); t < row_.tiles; t += kSamplingThreads) {
      if (key_of(row_memory_.maxima[t]) < lowest || t % kCluster != rank) continue;
      memory_.tiles[atomicAdd(&memory_.tile_count, 1)] = static_cast<uint16_t>(t);
    }
    __syncthreads();
    return {row_.logits, row_.divider, row_.columns, lowest, memory_.tiles, memory_.tile_count};
  }

  // Picks by the running mass of the kept tokens in the order of ids: first a bin of 128 ids, then
  // one id.
  __device__ int pick_kept(const CandidateBins<kCluster>& bins, KeptSet& kept) {
    const auto kept_mass = [&](uint32_t key, uint32_t id) -> uint64_t {
      if (key < kept.key || (key == kept.key && id > kept.last_id)) return 0;
      const float weight = weight_of(value_of(key), maximum_);
      return weight >= kept.min_weight ? mass_of(weight) : 0;
    };
    memory_.histogram.clear();
    bins.add_by_id(kept_mass);
    const BinScan scan = memory_.histogram.template join_and_scan<kCluster>();
    kept.mass = scan.total.mass;
    const uint64_t goal = scale_uniform(uniform_bits(parameters_), kept.mass);
    const Found ids = memory_.histogram.find(scan, true, goal + 1);
    const int id = (ids.bin << kIdBinBits) + static_cast<int>(threadIdx.x);
    uint64_t mass = 0, total;
    if (threadIdx.x < (1u << kIdBinBits) && id < row_.columns) {
      mass = kept_mass(key_of(row_.z_of(id)), static_cast<uint32_t>(id));
    }
    const uint64_t before = ids.before.mass + scan_block(mass, row_memory_.warps[1], total);
    if (before <= goal && goal < before + mass) row_memory_.token = id;
    __syncthreads();
    return row_memory_.token;
  }

  TruncationMemory& memory_;
  RowMemory& row_memory_;
  const SamplingParameters& parameters_;
  const SampledRow& row_;
  const float maximum_;
};

}  // namespace slimexx::kernels::vocabulary
