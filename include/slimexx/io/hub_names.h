// Hints for users who give OWNER/NAME of the Hugging Face hub instead of a local folder or file.
// The program does not access the hub.
#pragma once
#include <string>

namespace slimexx::io {

// The hint for a model folder, or a data file, that does not exist.
std::string missing_model_hint(const std::string& path);
std::string missing_data_hint(const std::string& path);

}  // namespace slimexx::io
