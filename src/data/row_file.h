// Rows of a JSON-lines file, or of a slice of it, and work on each of them in parallel.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::data {

// "path@[start:end]" taken apart. Bounds count as Python's do; absent ones are 0 and the end.
struct SlicedPath {
  std::string path;
  int64_t start = 0;
  int64_t end = INT64_MAX;
};
// Throws Error(kUsage) for a suffix that is not a slice. A file that is named so as it stands is
// one.
SlicedPath parse_sliced_path(const std::string& prompt_data);

struct Row {
  int64_t index = 0;  // in the file, blank lines not counted
  std::string line;
  std::string where;  // "path:line"
  int64_t line_number = 0;
};
// Throws Error(kInput) if the slice holds no row.
std::vector<Row> read_rows(const std::string& prompt_data);

// Calls work(i, object) for each row, parsed to an object, on the thread pool; rethrows the failure
// of the first row that fails, with its place.
void for_each_row(const std::vector<Row>& rows,
                  const std::function<void(size_t, const Json&)>& work);

// 128-bit hash, as hexadecimal digits, of the numbers and lines of the rows with keep[i] != 0.
std::string hash_rows(const std::vector<Row>& rows, const std::vector<uint8_t>& keep);

}  // namespace slimexx::data
