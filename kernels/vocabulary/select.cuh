// Histograms of counts and masses, and the search for the bin in which the running count or mass
// reaches a goal. Each block of a cluster adds its share of the items. All sums are integers, so
// the order of additions does not matter, and every block gets the same result.
#pragma once
#include "kernels/common/mbarrier.cuh"
#include "kernels/vocabulary/sampling.cuh"

namespace slimexx::kernels::vocabulary {

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr int kBinsPerThread = kBins / kSamplingThreads;
static_assert(kBinsPerThread == 4);

struct Tally {
  uint64_t count, mass;  // no initialisers, which shared memory does not allow
  __device__ Tally operator+(const Tally& o) const { return {count + o.count, mass + o.mass}; }
};

struct Found {
  int bin;  // -1: the goal is above the total
  Tally before, in_bin;
};

// A thread's share of a filled histogram: bins 4t .. 4t + 3.
struct BinScan {
  Tally before, own, total;  // sums over lower bins, over the thread's own bins, over all bins
};

__device__ __forceinline__ uint4 read_peer(const uint32_t* own, uint32_t rank) {
  uint4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [remote];\n"
      "}\n"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "r"(shared_address(own)), "r"(rank)
      : "memory");
  return v;
}

// Sum of `mass` over the given lanes; each mass is below 2^48.
__device__ __forceinline__ uint64_t add_lanes(uint32_t lanes, uint64_t mass) {
  constexpr uint32_t kHalf = 0xffffffu;
  const uint64_t low = __reduce_add_sync(lanes, static_cast<uint32_t>(mass) & kHalf);
  const uint64_t high = __reduce_add_sync(lanes, static_cast<uint32_t>(mass >> 24));
  return low + (high << 24);
}

// Exclusive prefix sum over the threads of a block; `total` becomes the sum over all threads.
// `warps` may be written again after the next barrier.
__device__ __forceinline__ uint64_t scan_block(uint64_t own, uint64_t* warps, uint64_t& total) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  uint64_t inclusive = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t left = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (lane >= distance) inclusive += left;
  }
  if (lane == 31) warps[warp] = inclusive;
  __syncthreads();
  uint64_t before = inclusive - own;
  total = 0;
#pragma unroll
  for (int w = 0; w < kSamplingWarps; ++w) {
    if (w == warp) before += total;
    total += warps[w];
  }
  return before;
}

struct Histogram {
  alignas(16) uint32_t count[kBins], low[kBins], high[kBins];
  uint64_t warp_counts[kSamplingWarps], warp_masses[kSamplingWarps];
  Found found;

  __device__ void clear() {
    __syncthreads();
    const uint4 zero = {0, 0, 0, 0};
    const uint32_t first = threadIdx.x * kBinsPerThread;
    *reinterpret_cast<uint4*>(count + first) = zero;
    *reinterpret_cast<uint4*>(low + first) = zero;
    *reinterpret_cast<uint4*>(high + first) = zero;
    __syncthreads();
  }
  __device__ void set(int bin, const Tally& tally) {
    count[bin] = static_cast<uint32_t>(tally.count);
    low[bin] = static_cast<uint32_t>(tally.mass);
    high[bin] = static_cast<uint32_t>(tally.mass >> 32);
  }
  __device__ Tally at(int bin) const { return {count[bin], uint64_t{high[bin]} << 32 | low[bin]}; }
  // Shared memory has no native 64-bit atomic add, so the carry is derived from the old low half.
  // If all active lanes have the same bin (rows of equal logits), one lane adds for all.
  __device__ __forceinline__ void add(int bin, uint64_t mass) {
    const uint32_t lanes = __activemask();
    const int leader = __ffs(static_cast<int>(lanes)) - 1;
    uint32_t items = 1;
    if (__all_sync(lanes, __shfl_sync(lanes, bin, leader) == bin)) {
      mass = add_lanes(lanes, mass);
      items = static_cast<uint32_t>(__popc(lanes));
      if (static_cast<int>(threadIdx.x % 32) != leader) return;
    }
    atomicAdd(&count[bin], items);
    if (mass == 0) return;
    const auto addend = static_cast<uint32_t>(mass);
    const uint32_t old = atomicAdd(&low[bin], addend);
    const uint32_t carry = old + addend < old ? 1u : 0u;
    const uint32_t upper = static_cast<uint32_t>(mass >> 32) + carry;
    if (upper != 0) atomicAdd(&high[bin], upper);
  }

  // All threads of the cluster call this function after its blocks have filled their histograms.
  // Afterwards every block's histogram holds the sum of all histograms.
  template <int kCluster>
  __device__ __forceinline__ BinScan join_and_scan() {
    __syncthreads();
    const int first = static_cast<int>(threadIdx.x) * kBinsPerThread;
    Tally bins[kBinsPerThread] = {};
    if constexpr (kCluster > 1) {
      sync_cluster();
      for (uint32_t rank = 0; rank < kCluster; ++rank) {
        const uint4 counts = read_peer(count + first, rank), lows = read_peer(low + first, rank),
                    highs = read_peer(high + first, rank);
        bins[0] = bins[0] + Tally{counts.x, uint64_t{highs.x} << 32 | lows.x};
        bins[1] = bins[1] + Tally{counts.y, uint64_t{highs.y} << 32 | lows.y};
        bins[2] = bins[2] + Tally{counts.z, uint64_t{highs.z} << 32 | lows.z};
        bins[3] = bins[3] + Tally{counts.w, uint64_t{highs.w} << 32 | lows.w};
      }
      sync_cluster();  // all blocks have read this histogram
      for (int i = 0; i < kBinsPerThread; ++i) set(first + i, bins[i]);
    } else {
      for (int i = 0; i < kBinsPerThread; ++i) bins[i] = at(first + i);
    }
    BinScan scan;
    scan.own = bins[0] + bins[1] + bins[2] + bins[3];
    scan.before.count = scan_block(scan.own.count, warp_counts, scan.total.count);
    scan.before.mass = scan_block(scan.own.mass, warp_masses, scan.total.mass);
    return scan;
  }

  // The first bin whose running mass (or count), its own included, is at least `goal` >= 1.
  __device__ __forceinline__ Found find(const BinScan& scan, bool by_mass, uint64_t goal) {
    const auto measure = [by_mass](const Tally& t) { return by_mass ? t.mass : t.count; };
    if (goal > measure(scan.total)) return {-1, {}, {}};
    if (measure(scan.before) < goal && goal <= measure(scan.before + scan.own)) {
      int bin = static_cast<int>(threadIdx.x) * kBinsPerThread;
      Tally before = scan.before;
      while (measure(before + at(bin)) < goal) before = before + at(bin++);
      found = {bin, before, at(bin)};
    }
    __syncthreads();
    const Found result = found;
    __syncthreads();
    return result;
  }
};

}  // namespace slimexx::kernels::vocabulary
