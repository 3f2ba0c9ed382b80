// Where the tests find their data and the program. Only test_paths.cpp is compiled with the absolute paths, so that ccache serves every other
// test file to each checkout.
#pragma once

#include <string>
#include <string_view>

namespace slimexx {

// A path below tests/ of the source tree.
std::string test_data_path(std::string_view relative);

// A path below the optional folder of real input, ../shared beside the checkout.
std::string shared_data_path(std::string_view relative);

// The program slimexx of this build.
std::string slimexx_binary();

}  // namespace slimexx
