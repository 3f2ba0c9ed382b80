// The rows of a test, one JSON value per line.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx {

inline std::vector<Json> read_json_lines(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    rows.push_back(parse_json(line, path + ":" + std::to_string(number)));
  }
  return rows;
}

}  // namespace slimexx
