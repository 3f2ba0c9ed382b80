// Reads and checks token ids in JSON lines, and writes numbers.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::cli {

// Reads row["tokens"]: `min_tokens` to `max_tokens` ids in [0, vocab_size). Throws Error(kInput) at
// `where` with the first invalid id.
std::vector<int32_t> read_tokens(const Json& row, int64_t vocab_size, int64_t min_tokens,
                                 int64_t max_tokens, const std::string& where);

// Appends "[0.5,-1.25]", each number as the shortest text that reads back as the same float.
void append_floats(std::string& out, std::span<const float> values);
void append_ids(std::string& out, std::span<const int32_t> ids);

// `text` as a JSON string; invalid UTF-8 becomes U+FFFD.
std::string quote_json(const std::string& text);

}  // namespace slimexx::cli
