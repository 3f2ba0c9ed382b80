#define XXH_INLINE_ALL
#include "io/content_hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "slimexx/base/file.h"

namespace slimexx::io {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

}  // namespace

struct ContentHash::State {
  XXH3_state_t xxh;
};

ContentHash::ContentHash() : state_(new State) { XXH3_128bits_reset(&state_->xxh); }
ContentHash::~ContentHash() = default;

void ContentHash::append(const void* data, uint64_t n_bytes) {
  if (n_bytes > 0) XXH3_128bits_update(&state_->xxh, data, n_bytes);
}

std::string ContentHash::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_text(std::string_view text) {
  ContentHash hash;
  hash.append(text.data(), text.size());
  return hash.hex();
}

std::string hash_file(const std::string& path) {
  const InputFile file(path);
  ContentHash hash;
  std::vector<char> buffer(std::min(kReadBytes, file.size_bytes()));
  for (uint64_t at = 0; at < file.size_bytes();) {
    const uint64_t n = std::min(kReadBytes, file.size_bytes() - at);
    file.read_at(at, buffer.data(), n);
    hash.append(buffer.data(), n);
    at += n;
  }
  return hash.hex();
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace slimexx::io
