// Cuts a stream of bytes into lines.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_source.h"

namespace slimexx::io {

class LineSplitter {
 public:
  LineSplitter(std::unique_ptr<ByteSource> source, std::string name, uint64_t max_line_bytes);
  // See LineReader::next.
  bool next(std::string& line);
  int64_t line_number() const { return line_number_; }
  uint64_t bytes_read() const { return bytes_read_; }
  std::string where() const;

 private:
  void append(std::string& line, size_t end);
  void check_start(std::string_view start) const;  // start: the file's first line, at least

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  uint64_t max_line_bytes_;
  std::vector<char> buffer_;
  size_t used_ = 0, filled_ = 0;  // range in buffer_
  int64_t line_number_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace slimexx::io
