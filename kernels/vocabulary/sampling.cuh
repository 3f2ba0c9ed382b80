// Definitions shared by the parts of sample_tokens: masses, the order of tokens, random numbers.
//
// Masses are integers: the weight exp(z - M) times 2^44, rounded down. z is logit / temperature,
// and M is the largest z of the allowed tokens. A row of 2^18 columns sums to at most 2^62. Integer
// sums do not depend on their order, so blocks may add with atomics and still give the same bits in
// every run. A token whose weight is below 2^-44 has mass 0.
#pragma once
#include "kernels/vocabulary/launch.cuh"
#include "slimexx/kernels/limits.h"

namespace slimexx::kernels::vocabulary {

constexpr int64_t kMaxSampledColumns = kMaxVocabulary;
constexpr int kMaxTiles = static_cast<int>(kMaxSampledColumns) / kTileColumns;
constexpr float kMassUnit = 0x1p44f;
constexpr int kSamplingThreads = 512;
constexpr int kSamplingWarps = kSamplingThreads / 32;

// The tokens of a row that truncation kept; written to the workspace for inspection
// (place_kept_sets). A token is kept if (key_of(z) > key, or key_of(z) == key and id <= last_id)
// and exp(z - maximum) >= min_weight.
struct KeptSet {
  uint32_t key = 0, last_id = 0xffffffffu;
  float maximum = 0.0f, min_weight = 0.0f;
  uint64_t total = 0;  // mass of all allowed tokens, from the tiles' sums
  uint64_t mass = 0;   // mass of the kept tokens, by which the uniform number is scaled
};
static_assert(sizeof(KeptSet) == 32);

inline KeptSet* place_kept_sets(void* workspace, int64_t rows, int64_t columns) {
  const size_t partials = (partials_bytes(rows, columns, false) + 15) / 16 * 16;
  return reinterpret_cast<KeptSet*>(static_cast<char*>(workspace) + partials);
}

// Keys have the order of the logits; -0 has the key of 0. value_of is the inverse.
__device__ __forceinline__ uint32_t key_of(float z) {
  const uint32_t bits = __float_as_uint(z + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ float weight_of(float z, float maximum) {
  return exp_approx(__fadd_rn(z, -maximum));
}
__device__ __forceinline__ uint64_t mass_of(float weight) {
  return __float2ull_rd(__fmul_rn(weight, kMassUnit));
}

// Philox4x32-10, as in base/philox.h and ops/cpu/sampling.cpp. The first two words give 53 bits:
// the uniform number times 2^53.
__device__ __forceinline__ uint64_t uniform_bits(const SamplingParameters& p) {
  uint32_t c0 = p.counter[0], c1 = p.counter[1], c2 = p.counter[2], c3 = p.counter[3];
  uint32_t k0 = static_cast<uint32_t>(p.seed), k1 = static_cast<uint32_t>(p.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return uint64_t{c0 >> 5} << 26 | c1 >> 6;
}

// floor(u * mass), which is below `mass`.
__device__ __forceinline__ uint64_t scale_uniform(uint64_t bits53, uint64_t mass) {
  return __umul64hi(bits53 << 11, mass);
}

}  // namespace slimexx::kernels::vocabulary
