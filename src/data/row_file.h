// Rows of a JSON-lines file, or of a slice of it, and work on each of them in parallel.
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

// Reads the rows of a file, or of a slice, some at a time: files of gigabytes are made into prompts
// without standing in memory as text. Says how far it is every ten seconds.
class RowReader {
 public:
  // With a bound that counts from the end, the file is read once before to count its rows.
  explicit RowReader(const std::string& prompt_data);
  // The next rows, about kBatchBytes of them and one at least; false after the last. Throws
  // Error(kInput) if the slice holds no row.
  bool next(std::vector<Row>& batch);

 private:
  void log_progress();

  std::string prompt_data_;
  SlicedPath slice_;  // bounds from 0 on
  io::LineReader reader_;
  int64_t count_ = 0, num_rows_ = 0;  // rows of the file that were passed, and those returned
  std::chrono::steady_clock::time_point last_line_;
};
inline constexpr size_t kBatchBytes = size_t{16} << 20;

// All of them.
std::vector<Row> read_rows(const std::string& prompt_data);

// Calls work(i, object) for each row, parsed to an object, on the thread pool; rethrows the failure
// of the first row that fails, with its place.
void for_each_row(const std::vector<Row>& rows,
                  const std::function<void(size_t, const Json&)>& work);

// 128-bit hash of the numbers and lines of rows, in the order in which they are added.
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
