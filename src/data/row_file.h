// Reads the rows of a JSON-lines file or of a slice of it, and processes them in parallel.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/lines.h"

namespace slimexx::data {

// The parts of "path@[start:end]". Bounds follow Python's rules; the defaults are 0 and the end.
struct SlicedPath {
  std::string path;
  int64_t start = 0;
  int64_t end = INT64_MAX;
};
// Throws Error(kUsage) if the suffix is not a slice. If a file has the whole text as its name, the
// text is its path.
SlicedPath parse_sliced_path(const std::string& prompt_data);

struct Row {
  int64_t index = 0;  // in the file, blank lines not counted
  std::string line;
  std::string where;  // "path:line"
  int64_t line_number = 0;
};

// Reads the rows of a file or slice in batches, so that a file of gigabytes is never in memory as a
// whole. Logs its progress every ten seconds.
class RowReader {
 public:
  // If a bound counts from the end, the file is read once more, to count the rows.
  explicit RowReader(const std::string& prompt_data);
  // Reads the next rows: about kBatchBytes, at least one row; false after the last. Throws
  // Error(kInput) if the slice has no row.
  bool next(std::vector<Row>& batch);

 private:
  void log_progress();

  std::string prompt_data_;
  SlicedPath slice_;  // both bounds count from the start
  io::LineReader reader_;
  int64_t count_ = 0, num_rows_ = 0;  // rows of the file passed so far, and rows returned
  std::chrono::steady_clock::time_point last_line_;
};
inline constexpr size_t kBatchBytes = size_t{16} << 20;

// All rows of a file or slice.
std::vector<Row> read_rows(const std::string& prompt_data);

// Calls work(i, object) for each row, parsed to an object, on the thread pool. If rows fail,
// rethrows the error of the first one, with the path and line of that row.
void for_each_row(const std::vector<Row>& rows,
                  const std::function<void(size_t, const Json&)>& work);

// 128-bit hash of the numbers and lines of rows, in the order of add().
class RowHash {
 public:
  RowHash();
  ~RowHash();
  RowHash(const RowHash&) = delete;
  RowHash& operator=(const RowHash&) = delete;
  void add(const Row& row);
  std::string digits() const;  // hexadecimal

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slimexx::data
