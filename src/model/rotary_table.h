// cos and sin of position x inverse frequency, computed as in transformers: frequencies are rounded
// to f32 at each step, the angle is f32.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/spec.h"

namespace slimexx::model {

std::vector<float> inverse_frequencies(const RopeSpec& rope);  // [rotary_dim/2]
// cos, sin [num_positions, rotary_dim/2]
void fill_rotary_tables(const RopeSpec& rope, int64_t num_positions, std::span<float> cos,
                        std::span<float> sin);

// Yarn's scale factor for a context extended by `factor`: 0.1 mscale ln(factor) + 1.
double yarn_scale(double factor, double mscale);

}  // namespace slimexx::model
