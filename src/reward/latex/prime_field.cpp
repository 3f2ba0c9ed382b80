#include "reward/latex/prime_field.h"

#include <algorithm>
#include <utility>

namespace slimexx::reward::latex {

U64 power(U64 base, U64 exponent, U64 p) {
  U64 result = 1;
  for (; exponent; exponent >>= 1, base = multiply(base, base, p)) {
    if (exponent & 1) result = multiply(result, base, p);
  }
  return result;
}

U64 inverse_mod(U64 a, U64 n) {
  __int128 t = 0, next_t = 1, r = n, next_r = a % n;
  while (next_r != 0) {
    const __int128 q = r / next_r;
    t = std::exchange(next_t, t - q * next_t);
    r = std::exchange(next_r, r - q * next_r);
  }
  return static_cast<U64>(t < 0 ? t + n : t);
}

namespace {

// Deterministic for 64 bits with these bases (Sorenson and Webster 2015).
bool is_prime(U64 n) {
  static constexpr U64 kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  for (U64 q : kBases) {
    if (n % q == 0) return n == q;
  }
  U64 odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (U64 base : kBases) {
    U64 x = power(base, odd, n);
    bool composite = x != 1 && x != n - 1;
    for (int k = 1; composite && k < twos; ++k) {
      x = multiply(x, x, n);
      composite = x != n - 1;
    }
    if (composite) return false;
  }
  return true;
}

int jacobi(U64 a, U64 n) {
  int sign = 1;
  for (a %= n; a != 0; a %= n) {
    while (a % 2 == 0) {
      a /= 2;
      if (n % 8 == 3 || n % 8 == 5) sign = -sign;
    }
    std::swap(a, n);
    if (a % 4 == 3 && n % 4 == 3) sign = -sign;
  }
  return n == 1 ? sign : 0;
}

}  // namespace

U64 find_prime(U64 seed, const std::set<U64>& residues) {
  for (U64 p = ((seed >> 3) | (U64{1} << 60)) | 3;; p += 4) {
    const U64 half = (p - 1) / 2;
    if (half % 3 == 0 || half % 5 == 0 || half % 7 == 0 || half % 11 == 0 || half % 13 == 0)
      continue;
    if (std::all_of(residues.begin(), residues.end(), [&](U64 q) { return jacobi(q, p) == 1; }) &&
        is_prime(p)) {
      return p;
    }
  }
}

}  // namespace slimexx::reward::latex
