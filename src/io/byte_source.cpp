#include "io/byte_source.h"

#include <algorithm>

namespace slimexx::io {

size_t FileSource::read(char* destination, size_t capacity) {
  const uint64_t n = std::min<uint64_t>(capacity, file_.size_bytes() - position_);
  if (n > 0) file_.read_at(position_, destination, n);
  position_ += n;
  return n;
}

size_t MemorySource::read(char* destination, size_t capacity) {
  const size_t n = rest_.copy(destination, capacity);
  rest_.remove_prefix(n);
  return n;
}

}  // namespace slimexx::io
