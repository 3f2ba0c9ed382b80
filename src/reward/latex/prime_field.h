// Arithmetic modulo a prime between 2^60 and 2^61.
#pragma once
#include <cstdint>
#include <set>

namespace slimexx::reward::latex {

using U64 = uint64_t;
using U128 = unsigned __int128;

inline U64 multiply(U64 a, U64 b, U64 p) { return static_cast<U64>(static_cast<U128>(a) * b % p); }
U64 power(U64 base, U64 exponent, U64 p);
U64 inverse_mod(U64 a, U64 n);

inline constexpr long kMaxRootDegree = 16;

// Finds a prime p with three properties. p = 3 mod 4, so that -1 has no square root and F_p[i] is a
// field. All `residues` are squares mod p. The odd part of every root degree up to kMaxRootDegree
// is coprime to (p - 1) / 2, the odd order of the squares.
U64 find_prime(U64 seed, const std::set<U64>& residues);

}  // namespace slimexx::reward::latex
