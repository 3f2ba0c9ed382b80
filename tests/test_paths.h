// Paths of the test data and the program. Only test_paths.cpp is compiled with absolute paths, so
// ccache can share all other test files between checkouts.
#pragma once

#include <string>
#include <string_view>

namespace slimexx {

// A path below tests/ of the source tree.
std::string test_data_path(std::string_view relative);

// The folder of a published tokenizer (qwen3, glm-4.5 or gpt2) from
// golden/tokenizers/tokenizers.tar.zst, which the build unpacks.
std::string real_tokenizer_path(std::string_view name);

// The program slimexx of this build.
std::string slimexx_binary();

}  // namespace slimexx
