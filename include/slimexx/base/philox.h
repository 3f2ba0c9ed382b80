// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): a pure
// function from (key, counter) to four 32-bit words. Random numbers are addressed by their purpose,
// never by the thread, rank or order that draws them (numerics contract, rule N8).
#pragma once
#include <array>
#include <cstdint>

namespace slimexx {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 24 bits, exact in float.
constexpr float uniform_float(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// A sequential stream of words for host code (shuffles, initial weights): the low two words of the
// counter count up, the high two are the stream.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t stream)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

  uint32_t next_word() {
    if (used_ == 4) {
      block_ = philox4x32(counter_, key_);
      if (++counter_[0] == 0) ++counter_[1];
      used_ = 0;
    }
    return block_[used_++];
  }
  float next_uniform() { return uniform_float(next_word()); }
  // Continues at word 4 * block.
  void seek_block(uint64_t block) {
    counter_[0] = static_cast<uint32_t>(block);
    counter_[1] = static_cast<uint32_t>(block >> 32);
    used_ = 4;
  }
  // Uniform in [0, bound), unbiased (rejection). bound > 0.
  uint64_t next_below(uint64_t bound);
  // Standard normal by Box-Muller, computed in double.
  double next_normal();

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace slimexx
