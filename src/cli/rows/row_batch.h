// JSON lines in batches of bounded size, so that a file of any length streams through.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/lines.h"

namespace slimexx::cli {

struct RowBatch {
  std::vector<Json> rows;
  std::vector<std::string> where;  // "path:line" of each row
  int64_t first_index = 0;         // of the file's rows, blank lines not counted
  size_t size() const { return where.size(); }
};

// The next rows, at most `max_rows`, and no more once they have io::kMaxLineBytes of text; false at
// the end.
bool read_batch(io::LineReader& reader, int64_t max_rows, RowBatch& batch);

// body(i) for every row, on the thread pool. Of all rows at fault the first one's Error is thrown,
// with its place in the file.
void for_each_row(const RowBatch& batch, const std::function<void(size_t)>& body);

// A member that must be a string; Error(kInput) otherwise.
const std::string& text_of(const Json& row, const char* key);

}  // namespace slimexx::cli
