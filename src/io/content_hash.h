// XXH3-128 of a byte stream, in hexadecimal as the xxhsum program prints it. It detects damage but
// not forgery.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace slimexx::io {

class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  void append(const void* data, uint64_t n_bytes);
  std::string hex() const;  // hash of all bytes so far, 32 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline constexpr size_t kHashDigits = 32;

std::string hash_text(std::string_view text);
std::string hash_file(const std::string& path);
bool is_hash(std::string_view text);

}  // namespace slimexx::io
