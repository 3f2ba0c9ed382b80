// Vectorized normal numbers from a PhiloxStream.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/base/philox.h"

namespace slimexx {

// values[i] = float(scale * normal[i]), where normal[i] has the bits of the i-th next_normal() from
// word 4 * block of the stream. Needs a fifth of the time of next_normal() with AVX2, an eighth
// with AVX-512. `scale` is finite.
void fill_normals(uint64_t seed, uint64_t stream, uint64_t block, double scale,
                  std::span<float> values);

// A normal by Box-Muller from two words of a stream, in double, with the C library's functions.
double normal_of_words(uint32_t u, uint32_t v);

// Like fill_normals, but values[i] comes from the given words u[i] and v[i].
void normals_of_words(std::span<const uint32_t> u, std::span<const uint32_t> v, double scale,
                      std::span<float> values);

}  // namespace slimexx
