// Vectorized log, cos and sqrt differ from the C library's in the last bits. A value is accepted if
// both ends of its error interval round to the same float; about one in 100,000 fails and is
// recomputed with PhiloxStream's formula. So the results equal the library's on every host and
// vector width.
#include "slimexx/base/normals.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numbers>

namespace slimexx {
namespace {

constexpr int kBatch = 512;  // normals per batch: whole vectors, a few pages of stack
constexpr double kUlp32 = 0x1p-32;

// Relative errors: fast results are within 2^-48 of the true value, the C library's within 2^-50.
constexpr double kErrorBound = 0x1p-43;

struct Batch {
  std::array<uint32_t, kBatch> u, v;  // words
  std::array<double, kBatch> normal;  // scaled normals
  std::array<float, kBatch> rounded;
};

#define SLX_INLINE inline __attribute__((always_inline))

// log x for normal 0 < x < 1: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s).
SLX_INLINE double fast_log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const uint64_t bits = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  // Converts the exponent to double without the int64 conversion that only AVX-512 has.
  const double e = std::bit_cast<double>((bits >> 52) | 0x4330000000000000) -
                   (bits >> 63 != 0 ? 0x1p52 + 0x1p12 : 0x1p52);
  const double m = std::bit_cast<double>((bits & 0x000fffffffffffff) + kSqrtHalf);
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return e * std::numbers::ln2 + (2.0 * s + 2.0 * s * z * p);
}

// cos x for 0 <= x <= 2 pi. Its relative error is small near the zeros too, because x is taken as
// exact.
SLX_INLINE double fast_cos(double x) {
  constexpr double kHalfPi = 0x1.921fb54442p+0;          // few bits: k * kHalfPi is exact
  constexpr double kHalfPiRest = 0x1.a308d313198a3p-41;  // pi / 2 - kHalfPi
  const double shifted = x * (2.0 / std::numbers::pi) + 0x1.8p52;
  const double k = shifted - 0x1.8p52;  // multiple of pi / 2 nearest to x
  const auto quadrant = std::bit_cast<uint64_t>(shifted);
  const double t = (x - k * kHalfPi) - k * kHalfPiRest, z = t * t;
  double even = -1.0 / 87178291200;
  even = even * z + 1.0 / 479001600;
  even = even * z - 1.0 / 3628800;
  even = even * z + 1.0 / 40320;
  even = even * z - 1.0 / 720;
  even = even * z + 1.0 / 24;
  even = even * z - 0.5;
  even = even * z + 1.0;
  double odd = -1.0 / 1307674368000;
  odd = odd * z + 1.0 / 6227020800;
  odd = odd * z - 1.0 / 39916800;
  odd = odd * z + 1.0 / 362880;
  odd = odd * z - 1.0 / 5040;
  odd = odd * z + 1.0 / 120;
  odd = odd * z - 1.0 / 6;
  odd = odd * z * t + t;
  const double value = (quadrant & 1) != 0 ? odd : even;
  const uint64_t sign = (quadrant + 1) << 62 & uint64_t{1} << 63;  // cos < 0 in quadrants 1 and 2
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ sign);
}

// Converts a word to double without the conversion that only AVX-512 has.
SLX_INLINE double widen(uint32_t word) {
  return std::bit_cast<double>(uint64_t{word} | 0x4330000000000000) - 0x1p52;
}

// Whether both ends of the error interval round to the same float.
SLX_INLINE bool is_sure(double x) {
  return static_cast<float>(x - x * kErrorBound) == static_cast<float>(x + x * kErrorBound);
}

// Returns the number of values in the batch that may round differently.
SLX_INLINE int compute_batch(Batch& b, double scale) {
  for (int i = 0; i < kBatch; ++i) {
    const double log_u = fast_log((widen(b.u[i]) + 0.5) * kUlp32);
    const double angle = 2.0 * std::numbers::pi * ((widen(b.v[i]) + 0.5) * kUlp32);
    b.normal[i] = scale * (__builtin_sqrt(-2.0 * log_u) * fast_cos(angle));
  }
  int unsure = 0;
  for (int i = 0; i < kBatch; ++i) {
    b.rounded[i] = static_cast<float>(b.normal[i]);
    unsure += is_sure(b.normal[i]) ? 0 : 1;
  }
  return unsure;
}

// Draws words [4 * block, 4 * block + 2 * kBatch) of a stream, with the block in `counter`.
SLX_INLINE void draw_words(Batch& b, PhiloxKey key, PhiloxCounter counter) {
  const uint64_t first = uint64_t{counter[1]} << 32 | counter[0];
  for (int i = 0; i < kBatch / 2; ++i) {
    const uint64_t block = first + static_cast<uint64_t>(i);
    const PhiloxCounter words = philox4x32(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), counter[2], counter[3]},
        key);
    b.u[2 * i] = words[0], b.v[2 * i] = words[1];
    b.u[2 * i + 1] = words[2], b.v[2 * i + 1] = words[3];
  }
}

struct Code {
  int (*compute)(Batch&, double);
  void (*draw)(Batch&, PhiloxKey, PhiloxCounter);
};

int compute_plain(Batch& b, double scale) { return compute_batch(b, scale); }
void draw_plain(Batch& b, PhiloxKey key, PhiloxCounter counter) { draw_words(b, key, counter); }
#if defined(__x86_64__)
#define SLX_AVX2 __attribute__((target("avx2")))
#define SLX_AVX512 __attribute__((target("avx512f,avx512dq")))
SLX_AVX2 int compute_avx2(Batch& b, double scale) { return compute_batch(b, scale); }
SLX_AVX2 void draw_avx2(Batch& b, PhiloxKey k, PhiloxCounter c) { draw_words(b, k, c); }
SLX_AVX512 int compute_avx512(Batch& b, double scale) { return compute_batch(b, scale); }
SLX_AVX512 void draw_avx512(Batch& b, PhiloxKey k, PhiloxCounter c) { draw_words(b, k, c); }
#endif

Code best_code() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
    return {compute_avx512, draw_avx512};
  if (__builtin_cpu_supports("avx2")) return {compute_avx2, draw_avx2};
#endif
  return {compute_plain, draw_plain};
}

const Code& code() {
  static const Code best = best_code();
  return best;
}

void finish_batch(Batch& b, double scale) {
  if (code().compute(b, scale) == 0) return;
  for (int i = 0; i < kBatch; ++i) {
    if (!is_sure(b.normal[i]))
      b.rounded[i] = static_cast<float>(scale * normal_of_words(b.u[i], b.v[i]));
  }
}

}  // namespace

void normals_of_words(std::span<const uint32_t> u, std::span<const uint32_t> v, double scale,
                      std::span<float> values) {
  Batch b{};
  for (size_t begin = 0; begin < values.size(); begin += kBatch) {
    const size_t n = std::min<size_t>(kBatch, values.size() - begin);
    std::copy_n(u.begin() + static_cast<std::ptrdiff_t>(begin), n, b.u.begin());
    std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(begin), n, b.v.begin());
    finish_batch(b, scale);
    std::copy_n(b.rounded.begin(), n, values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

void fill_normals(uint64_t seed, uint64_t stream, uint64_t block, double scale,
                  std::span<float> values) {
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  Batch b;
  for (size_t begin = 0; begin < values.size(); begin += kBatch, block += kBatch / 2) {
    const size_t n = std::min<size_t>(kBatch, values.size() - begin);
    code().draw(b, key,
                {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
    finish_batch(b, scale);
    std::copy_n(b.rounded.begin(), n, values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace slimexx
