#include "io/line_splitter.h"

#include <fmt/core.h>

#include <cstring>
#include <string_view>

#include "io/foreign_format.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;

}  // namespace

LineSplitter::LineSplitter(std::unique_ptr<ByteSource> source, std::string name,
                           uint64_t max_line_bytes)
    : source_(std::move(source)),
      name_(std::move(name)),
      max_line_bytes_(max_line_bytes),
      buffer_(kBufferBytes) {}

std::string LineSplitter::where() const { return fmt::format("{}:{}", name_, line_number_); }

void LineSplitter::append(std::string& line, size_t end) {
  if (line.size() + (end - used_) > max_line_bytes_) {
    throw Error(ErrorCode::kInput,
                fmt::format("the line is longer than {}", format_bytes(double(max_line_bytes_))),
                "write one JSON object per line, and split longer ones", where());
  }
  line.append(buffer_.data() + used_, end - used_);
  used_ = end;
}

void LineSplitter::check_start(std::string_view start) const {
  if (start.starts_with("\xEF\xBB\xBF")) {
    throw Error(ErrorCode::kInput, "the file starts with a byte-order mark",
                "save it as plain UTF-8", where());
  }
  if (start.starts_with("\x1F\x8B")) {
    throw Error(
        ErrorCode::kInput, "the file is gzip-compressed",
        "unpack it with `gunzip`, or compress it with zstd: files named *.zst are read directly",
        name_);
  }
  if (start.starts_with("version https://git-lfs.github.com/")) {
    throw Error(ErrorCode::kInput, "the file is a Git LFS pointer, not the data",
                "fetch the data with `git lfs pull`", where());
  }
  if (const auto format = find_foreign_format(start, name_))
    throw Error(ErrorCode::kInput, format->what, format->hint, name_);
}

bool LineSplitter::next(std::string& line) {
  line.clear();
  bool any = false;
  ++line_number_;
  for (;;) {
    if (used_ == filled_) {
      used_ = 0;
      filled_ = source_->read(buffer_.data(), buffer_.size());
      if (filled_ == 0) break;
      if (line_number_ == 1 && !any) check_start({buffer_.data(), filled_});
    }
    any = true;
    const auto* newline =
        static_cast<const char*>(std::memchr(buffer_.data() + used_, '\n', filled_ - used_));
    append(line, newline ? static_cast<size_t>(newline - buffer_.data()) : filled_);
    if (newline) {
      ++used_;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      break;
    }
  }
  if (!any) {
    --line_number_;
    return false;
  }
  bytes_read_ += line.size() + 1;
  return true;
}

}  // namespace slimexx::io
