#include "data/python_random.h"

#include <algorithm>
#include <bit>

namespace slimexx::data {

PythonRandom::PythonRandom(int64_t seed) {
  const uint64_t magnitude =
      seed < 0 ? ~static_cast<uint64_t>(seed) + 1 : static_cast<uint64_t>(seed);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(magnitude),
                                       static_cast<uint32_t>(magnitude >> 32)};
  const size_t key_size = key[1] != 0 ? 2 : 1;
  // init_by_array of the reference implementation: mixes mt[i] with the key, then with its index.
  seed_with_word(19650218u);
  size_t i = 1, j = 0;
  const auto mix = [&](uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  const auto advance = [&] {
    if (++i == kStateSize) {
      state_[0] = state_[kStateSize - 1];
      i = 1;
    }
  };
  for (int k = 0; k < kStateSize; ++k) {
    state_[i] = mix(1664525u) + key[j] + static_cast<uint32_t>(j);
    advance();
    j = (j + 1) % key_size;
  }
  for (int k = 1; k < kStateSize; ++k) {
    state_[i] = mix(1566083941u) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000u;
}

void PythonRandom::seed_with_word(uint32_t word) {
  state_[0] = word;
  for (uint32_t i = 1; i < kStateSize; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void PythonRandom::refill() {
  for (int i = 0; i < kStateSize; ++i) {
    const uint32_t y = (state_[static_cast<size_t>(i)] & 0x80000000u) |
                       (state_[static_cast<size_t>((i + 1) % kStateSize)] & 0x7fffffffu);
    state_[static_cast<size_t>(i)] = state_[static_cast<size_t>((i + kShift) % kStateSize)] ^
                                     (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
  }
  used_ = 0;
}

uint32_t PythonRandom::next_word() {
  if (used_ == kStateSize) refill();
  uint32_t y = state_[static_cast<size_t>(used_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

uint64_t PythonRandom::next_bits(int bits) {
  const uint64_t low = next_word();
  if (bits <= 32) return low >> (32 - bits);
  return low | (static_cast<uint64_t>(next_word() >> (64 - bits)) << 32);
}

uint64_t PythonRandom::next_below(uint64_t bound) {
  const int bits = static_cast<int>(std::bit_width(bound));
  for (;;) {
    const uint64_t drawn = next_bits(bits);
    if (drawn < bound) return drawn;
  }
}

}  // namespace slimexx::data
