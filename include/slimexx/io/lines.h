// Reads and writes text files by lines, plain or zstd-compressed (name ends in .zst); for JSON
// lines.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace slimexx::io {

// Limit for rows from users: parsed JSON, templates and tokens take up to 25 times a row's bytes.
inline constexpr uint64_t kMaxLineBytes = uint64_t{32} << 20;

// Reads line by line with bounded memory. Accepts CRLF and a missing final newline. Throws
// Error(kInput) for a line over max_line_bytes and for a compressed file that is truncated, asks
// for a window over 128 MiB or is followed by garbage.
class LineReader {
 public:
  explicit LineReader(const std::string& path, uint64_t max_line_bytes = kMaxLineBytes);
  LineReader(LineReader&&) noexcept;
  ~LineReader();
  bool next(std::string& line);  // false at the end; `line` without its newline
  // The next line that is not blank. Throws Error(kInput) after 64 MiB of blank lines in a row,
  // since a tiny compressed file can hold an endless run of them.
  bool next_filled(std::string& line);
  int64_t line_number() const;  // of the last returned line, from 1
  uint64_t bytes_read() const;  // all lines so far, decompressed, each with a newline
  std::string where() const;    // "path:line", for errors

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The next non-blank line parsed as a JSON object; false at the end. Throws Error(kInput) at
// path:line.
bool next_json_object(LineReader& reader, Json& object);

// Size of `text` in bytes after zstd compression.
uint64_t compressed_bytes(std::string_view text);

// Writes lines; the file appears on finish(). A name ending in .zst makes it compressed.
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

// Returns `error` with the row ("path:line") whose processing raised it. The row becomes the
// error's `where`, or part of its message if `where` is set (a line of the chat template, a key of
// tokenizer.json).
Error error_in_row(const Error& error, const std::string& row);

}  // namespace slimexx::io
