// Converts hexadecimal digits from a case file to bytes.
#pragma once
#include <string>

namespace slimexx::io {

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace slimexx::io
