// OWNER/NAME of the Hugging Face hub, given in place of a folder or a file. The program does not
// reach the hub.
#pragma once
#include <string>

namespace slimexx::io {

// What to do where there is no such folder of a model, or file of data.
std::string missing_model_hint(const std::string& path);
std::string missing_data_hint(const std::string& path);

}  // namespace slimexx::io
