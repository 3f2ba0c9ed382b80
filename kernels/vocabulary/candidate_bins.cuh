// Counts and weighs the candidates of a truncated row in bins of equal width in z (tile_sum.cuh),
// and orders the tokens of one bin exactly. A cluster of blocks shares the row's tiles; all its
// blocks get the same results.
#pragma once
#include "kernels/vocabulary/row_sources.cuh"

namespace slimexx::kernels::vocabulary {

constexpr int kMaxSorted = 1024;

// The last token kept for a goal (top_k's count or top_p's mass), and the mass of all kept tokens.
struct LastKept {
  uint32_t key, id;
  uint64_t mass;
};

struct TruncationMemory {
  Histogram histogram;
  uint16_t tiles[kMaxTiles];
  alignas(16) uint64_t few[kMaxSorted];  // tokens of one bin: key * 2^32 + inverted id
  uint64_t all_few[kMaxSorted];          // those of the whole cluster
  alignas(16) uint32_t few_count[4];     // only [0] is used; read_peer reads 16 bytes
  int tile_count, candidate_count;
  uint64_t warp_masses[kSamplingWarps];
  LastKept last;
};

// The public functions are collective: all threads of the cluster must call them.
template <int kCluster>
class CandidateBins {
 public:
  // `candidates` has room for kMaxCandidates.
  __device__ CandidateBins(TruncationMemory& memory, uint64_t* candidates, const TiledRow& tiled,
                           float maximum)
      : memory_(memory), tiled_(tiled), maximum_(maximum), candidates_(candidates) {
    const float lowest = value_of(tiled.lowest_key);
    const float span = tiled.lowest_key == 0 ? 40.0f : __fadd_rn(maximum, -lowest);
    bins_per_unit_ = static_cast<float>(kBins) / fmaxf(span, 1e-3f);
  }

  // Weighs the candidates, and lists them if they fit.
  __device__ __forceinline__ void fill() {
    memory_.histogram.clear();
    tiled_.for_each([&](uint32_t key, uint32_t id) {
      const int at = reserve_place();
      if (at < kMaxCandidates) candidates_[at] = uint64_t{key} << 32 | id;
      memory_.histogram.add(bin_of(key), mass_of_key(key));
    });
    scan_ = memory_.histogram.template join_and_scan<kCluster>();
    is_listed_ = memory_.candidate_count <= kMaxCandidates;
  }

  // Keeps the best tokens, as few as reach the count or mass `goal`; keeps all if the total is
  // below it. Returns the mass of the kept tokens.
  __device__ uint64_t keep(KeptSet& kept, bool by_mass, uint64_t goal) {
    const Found bin = memory_.histogram.find(scan_, by_mass, goal);
    if (bin.bin < 0) return scan_.total.mass;
    LastKept last;
    if (bin.in_bin.count <= kMaxSorted) {
      last = order_few(bin, by_mass, goal);
    } else {
      last = order_many(bin, by_mass, goal);
      refill();
    }
    kept.key = last.key;
    kept.last_id = last.id;
    return last.mass;
  }

  // Sets bin id / 128 of the histogram to the sum of mass(key, id).
  template <class Mass>
  __device__ __forceinline__ void add_by_id(Mass mass) const {
    if (is_listed_) {
      list().add_by_id(memory_.histogram, mass);
    } else {
      tiled_.add_by_id(memory_.histogram, mass);
    }
  }

 private:
  __device__ uint64_t mass_of_key(uint32_t key) const {
    return mass_of(weight_of(value_of(key), maximum_));
  }
  // Bin 0 has the largest z; bins ascend as z descends. The last bin has all lower z.
  __device__ int bin_of(uint32_t key) const {
    const float bin = __fmul_rn(__fadd_rn(maximum_, -value_of(key)), bins_per_unit_);
    return min(kBins - 1, __float2int_rz(bin));  // the conversion saturates
  }

  __device__ CandidateList list() const { return {candidates_, memory_.candidate_count}; }

  // The active lanes of a warp reserve their places by one atomic.
  __device__ __forceinline__ int reserve_place() {
    const uint32_t lanes = __activemask(), lane = threadIdx.x % 32;
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    int first = 0;
    if (static_cast<int>(lane) == leader) {
      first = atomicAdd(&memory_.candidate_count, __popc(lanes));
    }
    return __shfl_sync(lanes, first, leader) + __popc(lanes & ((1u << lane) - 1));
  }

  template <class F>
  __device__ __forceinline__ void for_each_candidate(F f) const {
    if (is_listed_) {
      list().for_each(f);
    } else {
      tiled_.for_each(f);
    }
  }

  __device__ LastKept order_few(const Found& bin, bool by_mass, uint64_t goal) {
    if (threadIdx.x == 0) memory_.few_count[0] = 0;
    __syncthreads();
    for_each_candidate([&](uint32_t key, uint32_t id) {
      if (bin_of(key) != bin.bin) return;
      // Descending numbers are in the order of descending keys, then ascending ids.
      memory_.few[atomicAdd(&memory_.few_count[0], 1u)] = uint64_t{key} << 32 | uint32_t{~id};
    });
    __syncthreads();
    uint64_t* const few = kCluster > 1 ? memory_.all_few : memory_.few;
    gather_few();
    sort_descending(few, static_cast<int>(bin.in_bin.count));
    // Thread t owns places 2t and 2t + 1.
    uint64_t masses[2], total;
    const uint32_t first = 2 * threadIdx.x;
    for (uint32_t i = 0; i < 2; ++i) {
      const bool exists = first + i < bin.in_bin.count;
      masses[i] = exists ? mass_of_key(static_cast<uint32_t>(few[first + i] >> 32)) : 0;
    }
    uint64_t mass = scan_block(masses[0] + masses[1], memory_.warp_masses, total);
    mass += bin.before.mass;
    for (uint32_t i = 0; i < 2; ++i) {
      const uint64_t place = bin.before.count + first + i;
      const uint64_t before = by_mass ? mass : place, own = by_mass ? masses[i] : 1;
      mass += masses[i];
      if (first + i < bin.in_bin.count && before < goal && goal <= before + own) {
        memory_.last = {static_cast<uint32_t>(few[first + i] >> 32),
                        ~static_cast<uint32_t>(few[first + i]), mass};
      }
    }
    __syncthreads();
    const LastKept last = memory_.last;
    __syncthreads();
    return last;
  }

  // Bitonic sort; `numbers` has room for `count` rounded up to a power of two.
  __device__ void sort_descending(uint64_t* numbers, int count) {
    const int thread = static_cast<int>(threadIdx.x);
    int size = 2;
    while (size < count) size *= 2;
    for (int i = count + thread; i < size; i += kSamplingThreads) numbers[i] = 0;
    for (int run = 2; run <= size; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        __syncthreads();
        for (int i = thread; i < size / 2; i += kSamplingThreads) {
          const int left = 2 * i - i % distance, right = left + distance;
          const uint64_t a = numbers[left], b = numbers[right];
          if ((a < b) != ((left & run) == 0)) continue;
          numbers[left] = b;
          numbers[right] = a;
        }
      }
    }
    __syncthreads();
  }

  // Copies the tokens that all blocks of the cluster found to all_few, in the order of the blocks.
  __device__ void gather_few() {
    if constexpr (kCluster > 1) {
      sync_cluster();
      uint32_t first = 0;
      for (uint32_t rank = 0; rank < kCluster; ++rank) {
        const uint32_t count = read_peer(memory_.few_count, rank).x;
        for (uint32_t i = 2 * threadIdx.x; i < count; i += 2 * kSamplingThreads) {
          const uint4 two = read_peer(reinterpret_cast<const uint32_t*>(memory_.few + i), rank);
          memory_.all_few[first + i] = uint64_t{two.y} << 32 | two.x;
          if (i + 1 < count) memory_.all_few[first + i + 1] = uint64_t{two.w} << 32 | two.z;
        }
        first += count;
      }
      sync_cluster();
    }
  }

  // Like order_few, for more tokens than can be sorted. Histograms refine the keys in the bin, 11
  // bits at a time, then the ids of the tokens with the last kept key.
  __device__ __noinline__ LastKept order_many(Found bin, bool by_mass, uint64_t goal) {
    const uint32_t highest = key_of(maximum_);
    goal -= by_mass ? bin.before.mass : bin.before.count;
    Tally before = bin.before;
    const Found by_key =
        refine(highest, by_mass, goal, before, [&](uint32_t key, uint32_t, uint32_t& rank) {
          rank = highest - key;
          return bin_of(key) == bin.bin;
        });
    LastKept last;
    last.key = highest - static_cast<uint32_t>(by_key.bin);
    const uint64_t one = mass_of_key(last.key);
    const uint64_t equals = by_mass ? (goal + one - 1) / one : goal;
    last.mass = before.mass + equals * one;
    goal = equals;
    const Found by_id = refine(static_cast<uint32_t>(tiled_.columns), false, goal, before,
                               [&](uint32_t key, uint32_t id, uint32_t& rank) {
                                 rank = id;
                                 return key == last.key;
                               });
    last.id = static_cast<uint32_t>(by_id.bin);
    return last;
  }

  // Orders by r the tokens for which rank(key, id, &r) is true; r <= range. The `bin` of the result
  // is the rank at which the running count or mass reaches `goal`. Lower ranks are added to
  // `before` and subtracted from `goal`.
  template <class Rank>
  __device__ Found refine(uint32_t range, bool by_mass, uint64_t& goal, Tally& before, Rank rank) {
    int shift = max(0, 32 - __clz(static_cast<int>(range)) - kBinBits);
    uint32_t base = 0, bins = kBins;
    while (true) {
      memory_.histogram.clear();
      tiled_.for_each([&](uint32_t key, uint32_t id) {
        uint32_t r;
        if (!rank(key, id, r)) return;
        const uint32_t bin = (r - base) >> shift;  // r < base wraps to a large number
        if (bin < bins) memory_.histogram.add(static_cast<int>(bin), mass_of_key(key));
      });
      const BinScan scan = memory_.histogram.template join_and_scan<kCluster>();
      Found found = memory_.histogram.find(scan, by_mass, goal);
      before = before + found.before;
      goal -= by_mass ? found.before.mass : found.before.count;
      base += static_cast<uint32_t>(found.bin) << shift;
      found.bin = static_cast<int>(base);
      if (shift == 0) return found;
      const int next = max(0, shift - kBinBits);
      bins = 1u << (shift - next);
      shift = next;
    }
  }

  __device__ __noinline__ void refill() {
    memory_.histogram.clear();
    tiled_.for_each(
        [&](uint32_t key, uint32_t) { memory_.histogram.add(bin_of(key), mass_of_key(key)); });
    scan_ = memory_.histogram.template join_and_scan<kCluster>();
  }

  TruncationMemory& memory_;
  const TiledRow tiled_;
  const float maximum_;
  uint64_t* const candidates_;
  bool is_listed_ = false;
  float bins_per_unit_;
  BinScan scan_;
};

}  // namespace slimexx::kernels::vocabulary
