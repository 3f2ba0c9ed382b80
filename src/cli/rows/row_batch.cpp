#include "cli/rows/row_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "slimexx/base/error.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::cli {

bool read_batch(io::LineReader& reader, int64_t max_rows, RowBatch& batch) {
  batch.first_index += std::ssize(batch.rows);
  batch.rows.clear();
  batch.where.clear();
  Json row;
  const uint64_t start = reader.bytes_read();
  while (std::ssize(batch.rows) < max_rows && reader.bytes_read() - start < io::kMaxLineBytes &&
         io::next_json_object(reader, row)) {
    batch.rows.push_back(std::move(row));
    batch.where.push_back(reader.where());
  }
  return !batch.rows.empty();
}

void for_each_row(const RowBatch& batch, const std::function<void(size_t)>& body) {
  std::vector<std::optional<Error>> faults(batch.size());
  parallel_for(std::ssize(batch.rows), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        body(i);
      } catch (const Error& e) {
        faults[i] = io::error_in_row(e, batch.where[i]);
      }
    }
  });
  const auto fault = std::ranges::find_if(faults, [](const auto& f) { return f.has_value(); });
  if (fault != faults.end()) throw **fault;
}

const std::string& text_of(const Json& row, const char* key) {
  const auto it = row.find(key);
  if (it == row.end()) {
    throw Error(ErrorCode::kInput, fmt::format("key \"{}\" is missing", key),
                fmt::format("{{\"{}\": \"text\"}}", key));
  }
  if (!it->is_string()) {
    throw Error(ErrorCode::kInput, fmt::format("key \"{}\" is {}, not text", key, it->type_name()),
                fmt::format("{{\"{}\": \"text\"}}", key));
  }
  return it->get_ref<const std::string&>();
}

}  // namespace slimexx::cli
