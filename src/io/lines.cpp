#include "slimexx/io/lines.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "io/line_splitter.h"
#include "io/zstd_stream.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace {

constexpr uint64_t kMaxBlankBytes = uint64_t{64} << 20;
constexpr size_t kWriteBytes = size_t{256} << 10;

bool is_compressed_name(const std::string& path) { return path.ends_with(".zst"); }

std::unique_ptr<ByteSource> open_source(const std::string& path) {
  auto file = std::make_unique<FileSource>(path);
  if (!is_compressed_name(path)) return file;
  return std::make_unique<ZstdSource>(std::move(file), path);
}

}  // namespace

struct LineReader::Impl {
  LineSplitter splitter;
};

LineReader::LineReader(const std::string& path, uint64_t max_line_bytes)
    : impl_(new Impl{LineSplitter(open_source(path), path, max_line_bytes)}) {}
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader::~LineReader() = default;

bool LineReader::next(std::string& line) { return impl_->splitter.next(line); }
uint64_t LineReader::bytes_read() const { return impl_->splitter.bytes_read(); }
int64_t LineReader::line_number() const { return impl_->splitter.line_number(); }
std::string LineReader::where() const { return impl_->splitter.where(); }

bool LineReader::next_filled(std::string& line) {
  const uint64_t start = bytes_read();
  while (next(line)) {
    if (!trim(line).empty()) return true;
    if (bytes_read() - start <= kMaxBlankBytes) continue;
    throw Error(ErrorCode::kInput,
                fmt::format("more than {} blank lines in a row",
                            format_bytes(static_cast<double>(kMaxBlankBytes))),
                "check that the file is complete, and that it is the right one", where());
  }
  return false;
}

bool next_json_object(LineReader& reader, Json& object) {
  std::string line;
  if (!reader.next_filled(line)) return false;
  object = parse_json(line, reader.where(), WideIntegers::kRefuse);
  if (!object.is_object()) {
    throw Error(ErrorCode::kInput,
                fmt::format("a JSON object is expected, not {}", object.type_name()),
                "each line is one object: {\"key\": value, ...}", reader.where());
  }
  return true;
}

uint64_t compressed_bytes(std::string_view text) {
  ZstdCompressor compressor;
  std::string out;
  compressor.append(text, out);
  compressor.end(out);
  return out.size();
}

struct LineWriter::Impl {
  explicit Impl(const std::string& path) : file(path) {
    if (is_compressed_name(path)) compressor.emplace();
  }
  void flush() {
    if (compressor) {
      packed.clear();
      compressor->append(pending, packed);
      file.write(packed);
    } else {
      file.write(pending);
    }
    pending.clear();
  }
  OutputFile file;
  std::optional<ZstdCompressor> compressor;
  std::string pending, packed;
  bool finished = false;
};

LineWriter::LineWriter(const std::string& path) : impl_(new Impl(path)) {}
LineWriter::~LineWriter() = default;

void LineWriter::write(std::string_view line) {
  SLX_CHECK(!impl_->finished, "a line is written after finish()");
  SLX_CHECK(line.find('\n') == std::string_view::npos, "a line holds a newline");
  impl_->pending.append(line);
  impl_->pending.push_back('\n');
  if (impl_->pending.size() >= kWriteBytes) impl_->flush();
}

void LineWriter::finish() {
  SLX_CHECK(!impl_->finished, "finish() is called twice");
  impl_->finished = true;
  impl_->flush();
  if (impl_->compressor) {
    impl_->packed.clear();
    impl_->compressor->end(impl_->packed);
    impl_->file.write(impl_->packed);
  }
  impl_->file.commit();
}

Error error_in_row(const Error& error, const std::string& row) {
  if (error.where().empty() || error.where().starts_with(row)) return error.with_where(row);
  return Error(error.code(), fmt::format("{} (row at {})", error.message(), row), error.hint(),
               error.where());
}

}  // namespace slimexx::io
