#include "cli/rows/token_rows.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"

namespace slimexx::cli {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what,
                         const std::string& hint = "") {
  throw Error(ErrorCode::kInput, what, hint, where);
}

bool is_id_below(const Json& value, int64_t limit) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() < static_cast<uint64_t>(limit);
  return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() < limit;
}

}  // namespace

std::vector<int32_t> read_tokens(const Json& row, int64_t vocab_size, int64_t min_tokens,
                                 int64_t max_tokens, const std::string& where) {
  const auto list = row.find("tokens");
  if (list == row.end()) refuse(where, "key \"tokens\" is missing", "{\"tokens\": [ids]}");
  if (!list->is_array())
    refuse(where, "key \"tokens\" is not a list of ids", "{\"tokens\": [ids]}");
  const auto count = static_cast<int64_t>(list->size());
  if (count < min_tokens) {
    refuse(where,
           fmt::format("key \"tokens\" has {} ids, but at least {} are needed", count, min_tokens),
           "remove the row, or add tokens");
  }
  if (count > max_tokens) {
    refuse(where,
           fmt::format("key \"tokens\" has {} ids, but the model supports {} "
                       "(max_position_embeddings in config.json)",
                       count, max_tokens),
           "shorten the sequence");
  }
  std::vector<int32_t> tokens;
  tokens.reserve(list->size());
  for (const Json& id : *list) {
    if (!is_id_below(id, vocab_size)) {
      refuse(where,
             fmt::format("tokens[{}] is {}, outside the vocabulary of {}", tokens.size(),
                         id.dump(-1, ' ', true).substr(0, 40), vocab_size),
             "were these ids made with this model's tokenizer?");
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

void append_floats(std::string& out, std::span<const float> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += format_float(values[i]);
  }
  out += ']';
}

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  out += ']';
}

std::string quote_json(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slimexx::cli
