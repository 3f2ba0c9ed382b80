// Reads JSON lines in batches of bounded size, so that files of any length can be streamed.
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
  int64_t first_index = 0;         // index of rows[0] in the file, without blank lines
  size_t size() const { return where.size(); }
};

// Reads the next rows: at most `max_rows`, and stops after io::kMaxLineBytes of text. False at the
// end of the file.
bool read_batch(io::LineReader& reader, int64_t max_rows, RowBatch& batch);

// Calls body(i) for every row on the thread pool. If rows fail, throws the Error of the first such
// row with its place in the file.
void for_each_row(const RowBatch& batch, const std::function<void(size_t)>& body);

// A member that must be a string; Error(kInput) otherwise.
const std::string& text_of(const Json& row, const char* key);

}  // namespace slimexx::cli
