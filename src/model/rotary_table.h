// cos and sin of position x inverse frequency, as Hugging Face's rotary embeddings compute them:
// frequencies rounded step by step as there, the angle in f32.
#pragma once
#include <vector>

#include "slimexx/model/spec.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::model {

std::vector<float> inverse_frequencies(const RopeSpec& rope);  // [rotary_dim/2]
void fill_rotary_tables(const RopeSpec& rope, tensor::Tensor cos, tensor::Tensor sin);

}  // namespace slimexx::model
