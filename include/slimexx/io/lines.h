// Text files of lines, plain or zstd-compressed (name ends in .zst), for JSON lines in and out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace slimexx::io {

// Reads line by line with bounded memory. CRLF is accepted, a missing final newline too. A
// compressed file that is cut short, asks for a window over 128 MiB or is followed by garbage
// throws Error(kInput); so does a line over max_line_bytes.
class LineReader {
 public:
  explicit LineReader(const std::string& path, uint64_t max_line_bytes = uint64_t{256} << 20);
  LineReader(LineReader&&) noexcept;
  ~LineReader();
  bool next(std::string& line);  // false at the end; `line` without its newline
  int64_t line_number() const;   // of the line last returned, from 1
  std::string where() const;     // "path:line", for errors

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The next non-blank line parsed as a JSON object; false at the end. Throws Error(kInput) at
// path:line.
bool next_json_object(LineReader& reader, Json& object);

// Writes lines; the file appears on finish(). ".zst" compresses.
class LineWriter {
 public:
  explicit LineWriter(const std::string& path);
  ~LineWriter();
  void write(std::string_view line);  // a newline is added
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The error of work on the row at `row` ("path:line"): names the row as its place, or beside the
// message where the place is another (a chat template's line, a key of tokenizer.json).
Error error_in_row(const Error& error, const std::string& row);

}  // namespace slimexx::io
