// Selection of ranked items by one block: histograms of counts and masses over 11 bits of the rank
// at a time, then the bin in which the running count or mass reaches a goal. Sums are integers, so
// the order in which threads meet the items does not matter.
#pragma once
#include "kernels/vocabulary/sampling.cuh"

namespace slimexx::kernels::vocabulary {

constexpr int kBinBits = 11;
constexpr int kBins = 1 << kBinBits;
constexpr int kBinsPerThread = kBins / kSamplingThreads;

struct Tally {
  uint64_t count, mass;  // no initialisers: it lives in shared memory
  __device__ Tally operator+(const Tally& o) const { return {count + o.count, mass + o.mass}; }
};

struct Found {
  int bin;  // -1: the goal is beyond the total
  Tally before, in_bin;
};

struct Histogram {
  uint32_t count[kBins], low[kBins], high[kBins];
  Tally warp_totals[kSamplingWarps];
  Found found;

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kSamplingThreads) {
      count[i] = low[i] = high[i] = 0;
    }
    if (threadIdx.x == 0) found.bin = -1;
  }
  __device__ void set(int bin, uint64_t mass) {
    count[bin] = 1;
    low[bin] = static_cast<uint32_t>(mass);
    high[bin] = static_cast<uint32_t>(mass >> 32);
  }
  // Shared memory has no 64-bit addition: the carry is found from the old low half. Lanes that are
  // all bound for one bin (flat rows) go there together.
  __device__ void add(int bin, uint64_t mass) {
    const uint32_t lanes = __activemask();
    int alike;
    __match_all_sync(lanes, bin, &alike);
    uint32_t items = 1;
    if (alike) {
      constexpr uint32_t kHalf = 0x3fffffu;  // masses of one token have at most 45 bits
      const uint64_t low_sum = __reduce_add_sync(lanes, static_cast<uint32_t>(mass) & kHalf);
      const uint64_t high_sum = __reduce_add_sync(lanes, static_cast<uint32_t>(mass >> 22));
      mass = low_sum + (high_sum << 22);
      items = static_cast<uint32_t>(__popc(lanes));
      if (threadIdx.x % 32 != static_cast<uint32_t>(__ffs(static_cast<int>(lanes)) - 1)) return;
    }
    atomicAdd(&count[bin], items);
    if (mass == 0) return;
    const auto addend = static_cast<uint32_t>(mass);
    const uint32_t old = atomicAdd(&low[bin], addend);
    const uint32_t carry = old + addend < old ? 1u : 0u;
    const uint32_t upper = static_cast<uint32_t>(mass >> 32) + carry;
    if (upper != 0) atomicAdd(&high[bin], upper);
  }
  __device__ Tally at(int bin) const { return {count[bin], uint64_t{high[bin]} << 32 | low[bin]}; }
};

__device__ __forceinline__ Tally shift_up(const Tally& t, int lanes) {
  return {__shfl_up_sync(0xffffffffu, t.count, lanes), __shfl_up_sync(0xffffffffu, t.mass, lanes)};
}

// The first bin up to which (inclusive) the mass, or the count, is at least goal(total) >= 1. The
// whole block calls, after it has filled the histogram; it may be cleared after the return.
template <bool kByMass, class Goal>
__device__ Found find_bin(Histogram& histogram, Goal goal) {
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int first = static_cast<int>(threadIdx.x) * kBinsPerThread;
  Tally own = {};
  for (int i = 0; i < kBinsPerThread; ++i) own = own + histogram.at(first + i);
  Tally inclusive = own;
  for (int distance = 1; distance < 32; distance *= 2) {
    const Tally left = shift_up(inclusive, distance);
    if (lane >= distance) inclusive = inclusive + left;
  }
  if (lane == 31) histogram.warp_totals[warp] = inclusive;
  __syncthreads();
  Tally before = {inclusive.count - own.count, inclusive.mass - own.mass};
  Tally total = {};
  for (int w = 0; w < kSamplingWarps; ++w) {
    if (w == warp) before = before + total;
    total = total + histogram.warp_totals[w];
  }
  const uint64_t wanted = goal(total);
  const auto measure = [](const Tally& t) { return kByMass ? t.mass : t.count; };
  if (measure(before) < wanted && wanted <= measure(before + own)) {
    int bin = first;
    while (measure(before + histogram.at(bin)) < wanted) before = before + histogram.at(bin++);
    histogram.found = {bin, before, histogram.at(bin)};
  }
  __syncthreads();
  const Found found = histogram.found;
  __syncthreads();
  return found;
}

struct Selection {
  bool reached;
  uint32_t rank;        // at which the goal is reached
  Tally before, equal;  // of lower ranks, of this rank
};

// Items of `source` (source.for_each(f) calls f(key, id) for each, over the block) in ascending
// order of rank(key, id, &r) (false: not an item), r in [0, range]: the rank at which the running
// mass or count reaches goal(total).
template <bool kByMass, class Source, class Rank, class Goal>
__device__ Selection select_rank(Histogram& histogram, const Source& source, uint32_t range,
                                 float maximum, Rank rank, Goal goal) {
  int shift = max(0, 32 - __clz(static_cast<int>(range)) - kBinBits);
  uint32_t base = 0, bins = kBins;
  Tally before = {};
  uint64_t wanted = 0;
  while (true) {
    histogram.clear();
    __syncthreads();
    source.for_each([&](uint32_t key, uint32_t id) {
      uint32_t r;
      if (!rank(key, id, r)) return;
      const uint32_t bin = (r - base) >> shift;  // wraps to a large number below base
      if (bin < bins) {
        histogram.add(static_cast<int>(bin), mass_of(weight_of(value_of(key), maximum)));
      }
    });
    const bool first = base == 0 && wanted == 0;
    const Found found = find_bin<kByMass>(histogram, [&](const Tally& total) {
      if (first) wanted = goal(total);
      return wanted;
    });
    if (found.bin < 0) return {false, 0, {}, {}};
    before = before + found.before;
    base += static_cast<uint32_t>(found.bin) << shift;
    if (shift == 0) return {true, base, before, found.in_bin};
    wanted -= kByMass ? found.before.mass : found.before.count;
    const int next = max(0, shift - kBinBits);
    bins = 1u << (shift - next);
    shift = next;
  }
}

}  // namespace slimexx::kernels::vocabulary
