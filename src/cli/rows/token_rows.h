// Token ids out of JSON lines, checked, and numbers back into them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::cli {

// row["tokens"]: ids in [0, vocab_size), at least `min_tokens` and at most `max_tokens` of them.
// Throws Error(kInput) at `where` naming the first id that is none.
std::vector<int32_t> read_tokens(const Json& row, int64_t vocab_size, int64_t min_tokens,
                                 int64_t max_tokens, const std::string& where);

// "[0.5,-1.25]", each number as the shortest text that reads back as the same float.
void append_floats(std::string& out, std::span<const float> values);
void append_ids(std::string& out, std::span<const int32_t> ids);

// JSON text of any bytes: what is not UTF-8 becomes U+FFFD.
std::string quote_json(const std::string& text);

}  // namespace slimexx::cli
