// The largest magnitude of a rectangle of a row-major f32 matrix.
#pragma once
#include <cstdint>

namespace slimexx::io {

// NaN if there is one, otherwise infinity if there is one.
float largest_magnitude(const float* x, int64_t rows, int64_t width, int64_t columns);

}  // namespace slimexx::io
