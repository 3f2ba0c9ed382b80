#include "test_paths.h"

namespace slimexx {

std::string test_data_path(std::string_view relative) {
  return std::string(SLX_TEST_DATA "/").append(relative);
}

std::string real_tokenizer_path(std::string_view name) {
  return std::string(SLX_UNPACKED_TOKENIZERS "/").append(name);
}

std::string slimexx_binary() { return SLX_BINARY; }

}  // namespace slimexx
