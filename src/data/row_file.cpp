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
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no bound of a slice", text),
                "write path@[start:end] with integers, either of which may be absent", prompt_data);
  }
  return value;
}

// A Python slice bound as a position in [0, n].
int64_t resolve_bound(int64_t bound, int64_t n) {
  return std::clamp<int64_t>(bound < 0 ? bound + n : bound, 0, n);
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

// A name of the Hugging Face hub, or a folder that was fetched from it, is no file of rows.
void check_is_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInput, "this is a folder, not a file of rows",
                "name one file in it: lines of JSON, .jsonl or .jsonl.zst", path);
  }
  if (!path_exists(path))
    throw Error(ErrorCode::kInput, "no such file", io::missing_data_hint(path), path);
}

}  // namespace

SlicedPath parse_sliced_path(const std::string& prompt_data) {
  const size_t at = prompt_data.rfind("@[");
  if (at == std::string::npos || path_exists(prompt_data)) return {prompt_data, 0, INT64_MAX};
  const std::string_view slice = std::string_view(prompt_data).substr(at + 2);
  const size_t colon = slice.find(':');
  if (!slice.ends_with(']') || colon == slice.npos) {
    throw Error(ErrorCode::kUsage, fmt::format("'@[{}' is no slice", slice),
                "write path@[start:end], where start and end may be absent or negative",
                prompt_data);
  }
  SlicedPath out;
  out.path = prompt_data.substr(0, at);
  out.start = parse_bound(slice.substr(0, colon), 0, prompt_data);
  out.end = parse_bound(slice.substr(colon + 1, slice.size() - colon - 2), INT64_MAX, prompt_data);
  return out;
}

std::vector<Row> read_rows(const std::string& prompt_data) {
  const SlicedPath sliced = parse_sliced_path(prompt_data);
  check_is_file(sliced.path);
  io::LineReader reader(sliced.path);
  std::vector<Row> rows;
  std::string line;
  int64_t count = 0;
  const bool known_start = sliced.start >= 0 && sliced.end >= 0;
  while (reader.next(line)) {
    if (trim(line).empty()) continue;
    if (known_start && count >= sliced.end) break;
    if (!known_start || count >= sliced.start) {
      rows.push_back({count, line, reader.where(), reader.line_number()});
    }
    ++count;
  }
  if (!known_start) {
    const int64_t start = resolve_bound(sliced.start, count);
    const int64_t end = std::max(resolve_bound(sliced.end, count), start);
    rows.erase(rows.begin() + end, rows.end());
    rows.erase(rows.begin(), rows.begin() + start);
  }
  if (rows.empty()) {
    throw Error(ErrorCode::kInput,
                count == 0 ? std::string("the file has no rows")
                           : fmt::format("the slice holds none of the {} rows read", count),
                "one JSON object a line, as {\"prompt\": ..., \"label\": ...}", prompt_data);
  }
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
          throw Error(ErrorCode::kInput, "the line is no JSON object",
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

std::string hash_rows(const std::vector<Row>& rows, const std::vector<uint8_t>& keep) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!keep[i]) continue;
    const std::string head = fmt::format("{}:{}\n", rows[i].index, rows[i].line.size());
    XXH3_128bits_update(&state, head.data(), head.size());
    XXH3_128bits_update(&state, rows[i].line.data(), rows[i].line.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace slimexx::data
