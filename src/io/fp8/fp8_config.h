// quantization_config of a converted folder, as serving engines and transformers read it.
#pragma once
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/fp8_conversion.h"

namespace slimexx::io {

// `kept`: sorted names of modules whose tensors are not quantised.
Json fp8_quantization_config(const Fp8Options& options, const std::vector<std::string>& kept);

}  // namespace slimexx::io
