#include "data/row_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/io/hub_names.h"
#include "slimexx/io/lines.h"

namespace slimexx::data {
namespace {

int64_t parse_bound(std::string_view text, int64_t absent, const std::string& prompt_data) {
  text = trim(text);
  if (text.empty()) return absent;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a bound of a slice", text),
                "write path@[start:end] with integers, either of which may be absent", prompt_data);
  }
  return value;
}

// A Python slice bound as a position in [0, n].
int64_t resolve_bound(int64_t bound, int64_t n) {
  return std::clamp<int64_t>(bound < 0 ? bound + n : bound, 0, n);
}

void check_is_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInput, "this is a folder, not a file of rows",
                "give one file in it: JSON lines, .jsonl or .jsonl.zst", path);
  }
  if (!path_exists(path))
    throw Error(ErrorCode::kInput, "no such file", io::missing_data_hint(path), path);
}

SlicedPath count_from_start(SlicedPath slice) {
  check_is_file(slice.path);
  if (slice.start >= 0 && slice.end >= 0) return slice;
  io::LineReader reader(slice.path);
  std::string line;
  int64_t count = 0;
  while (reader.next_filled(line)) ++count;
  slice.start = resolve_bound(slice.start, count);
  slice.end = resolve_bound(slice.end, count);
  return slice;
}

void throw_first(const std::vector<std::exception_ptr>& failures, const std::vector<Row>& rows) {
  for (size_t i = 0; i < failures.size(); ++i) {
    if (!failures[i]) continue;
    try {
      std::rethrow_exception(failures[i]);
    } catch (const Error& error) {
      throw io::error_in_row(error, rows[i].where);
    }
  }
}

}  // namespace

SlicedPath parse_sliced_path(const std::string& prompt_data) {
  const size_t at = prompt_data.rfind("@[");
  if (at == std::string::npos || path_exists(prompt_data)) return {prompt_data, 0, INT64_MAX};
  const std::string_view slice = std::string_view(prompt_data).substr(at + 2);
  const size_t colon = slice.find(':');
  if (!slice.ends_with(']') || colon == slice.npos) {
    throw Error(ErrorCode::kUsage, fmt::format("'@[{}' is not a slice", slice),
                "write path@[start:end], where start and end may be absent or negative",
                prompt_data);
  }
  SlicedPath out;
  out.path = prompt_data.substr(0, at);
  out.start = parse_bound(slice.substr(0, colon), 0, prompt_data);
  out.end = parse_bound(slice.substr(colon + 1, slice.size() - colon - 2), INT64_MAX, prompt_data);
  return out;
}

RowReader::RowReader(const std::string& prompt_data)
    : prompt_data_(prompt_data),
      slice_(count_from_start(parse_sliced_path(prompt_data))),
      reader_(slice_.path),
      last_line_(std::chrono::steady_clock::now()) {}

bool RowReader::next(std::vector<Row>& batch) {
  batch.clear();
  std::string line;
  size_t bytes = 0;
  while (bytes < kBatchBytes && count_ < slice_.end && reader_.next_filled(line)) {
    if (count_ >= slice_.start) {
      bytes += line.size();
      batch.push_back({count_, std::move(line), reader_.where(), reader_.line_number()});
      line.clear();
    }
    ++count_;
  }
  num_rows_ += std::ssize(batch);
  log_progress();
  if (num_rows_ > 0) return !batch.empty();
  throw Error(ErrorCode::kInput,
              count_ == 0 ? std::string("the file has no rows")
                          : fmt::format("the slice contains none of the {} rows read", count_),
              "write one JSON object per line, as {\"prompt\": ..., \"label\": ...}", prompt_data_);
}

void RowReader::log_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ < std::chrono::seconds(10)) return;
  last_line_ = now;
  log_info("{}: {} rows read, {}", slice_.path, num_rows_,
           format_bytes(static_cast<double>(reader_.bytes_read())));
}

std::vector<Row> read_rows(const std::string& prompt_data) {
  RowReader reader(prompt_data);
  std::vector<Row> rows, batch;
  while (reader.next(batch)) rows.insert(rows.end(), batch.begin(), batch.end());
  return rows;
}

void for_each_row(const std::vector<Row>& rows,
                  const std::function<void(size_t, const Json&)>& work) {
  std::vector<std::exception_ptr> failures(rows.size());
  parallel_for(static_cast<int64_t>(rows.size()), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        const Json object = parse_json(rows[i].line, rows[i].where, WideIntegers::kRefuse);
        if (!object.is_object()) {
          throw Error(ErrorCode::kInput, "the line is not a JSON object",
                      "a row is {\"prompt\": ..., \"label\": ...}");
        }
        work(i, object);
      } catch (const Error&) {
        failures[i] = std::current_exception();
        return;  // later rows of this range cannot be the first to fail
      }
    }
  });
  throw_first(failures, rows);
}

struct RowHash::State {
  XXH3_state_t hash;
};

RowHash::RowHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
RowHash::~RowHash() = default;

void RowHash::add(const Row& row) {
  const std::string head = fmt::format("{}:{}\n", row.index, row.line.size());
  XXH3_128bits_update(&state_->hash, head.data(), head.size());
  XXH3_128bits_update(&state_->hash, row.line.data(), row.line.size());
}

std::string RowHash::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace slimexx::data
