// A source of bytes: a file, a decompressor over another source, or (in tests) memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/base/file.h"

namespace slimexx::io {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `capacity` bytes and returns their number; 0 only at the end.
  virtual size_t read(char* destination, size_t capacity) = 0;
};

class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : file_(path) {}
  size_t read(char* destination, size_t capacity) override;

 private:
  InputFile file_;
  uint64_t position_ = 0;
};

// A source over text; the text must outlive the source.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : rest_(text) {}
  size_t read(char* destination, size_t capacity) override;

 private:
  std::string_view rest_;
};

}  // namespace slimexx::io
