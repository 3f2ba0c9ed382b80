// The generator of Python's `random` module: MT19937 (Matsumoto and Nishimura, "Mersenne Twister",
// ACM TOMACS 8(1), 1998), seeded and read as in CPython.
#pragma once
#include <array>
#include <cstdint>

namespace slimexx::data {

class PythonRandom {
 public:
  // random.seed(seed): the absolute value's 32-bit words, low first, seed the state as an array.
  explicit PythonRandom(int64_t seed);

  uint32_t next_word();
  // random.getrandbits(bits), 1 <= bits <= 64.
  uint64_t next_bits(int bits);
  // random.randrange(bound), bound >= 1: draws numbers of bound's bit length until one is below it.
  uint64_t next_below(uint64_t bound);

 private:
  static constexpr int kStateSize = 624;
  static constexpr int kShift = 397;

  void seed_with_word(uint32_t word);
  void refill();

  std::array<uint32_t, kStateSize> state_;
  int used_ = kStateSize;
};

}  // namespace slimexx::data
