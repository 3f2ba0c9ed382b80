// Text files of lines, plain or zstd-compressed (name ends in .zst), for JSON lines in and out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace slimexx::io {

// Limit of rows that users write: parsed JSON, templates and tokens take up to 25 times its bytes.
inline constexpr uint64_t kMaxLineBytes = uint64_t{32} << 20;

// Reads line by line with bounded memory. CRLF is accepted, a missing final newline too. A
// compressed file that is cut short, asks for a window over 128 MiB or is followed by garbage
// throws Error(kInput); so does a line over max_line_bytes.
class LineReader {
 public:
  explicit LineReader(const std::string& path, uint64_t max_line_bytes = kMaxLineBytes);
  LineReader(LineReader&&) noexcept;
  ~LineReader();
  bool next(std::string& line);  // false at the end; `line` without its newline
  // The next line that is not blank. Throws Error(kInput) after 64 MiB of blank lines in a row: so
  // many compress to nothing, and the file is not what is meant.
  bool next_filled(std::string& line);
  int64_t line_number() const;  // of the line last returned, from 1
  uint64_t bytes_read() const;  // all lines so far, decompressed, each with a newline
  std::string where() const;    // "path:line", for errors

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The next non-blank line parsed as a JSON object; false at the end. Throws Error(kInput) at
// path:line.
bool next_json_object(LineReader& reader, Json& object);

// Bytes that zstd makes of `text`.
uint64_t compressed_bytes(std::string_view text);

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

// An error in the work on the row at `row` ("path:line"). It names the row as its place, or in the
// message where it has another place (a chat template's line, a key of tokenizer.json).
Error error_in_row(const Error& error, const std::string& row);

}  // namespace slimexx::io
