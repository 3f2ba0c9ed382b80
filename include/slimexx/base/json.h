// Strict JSON for files from elsewhere: UTF-8, no duplicate keys, bounded depth, errors with the
// byte offset. Key order is kept. Include <nlohmann/json.hpp> in the source that walks the value.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace slimexx {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 128;

// What becomes of an integer beyond 64 bits: the nearest double, or Error(kInput). Rows of users
// refuse it: a label would silently become another number.
enum class WideIntegers { kRound, kRefuse };

// Parses all of `text`; throws Error(kInput) naming `where`, the byte offset and, for a duplicate,
// the key. A byte-order mark, comments and trailing text are refused.
Json parse_json(std::string_view text, const std::string& where,
                WideIntegers wide_integers = WideIntegers::kRound);

// read_text_file + parse_json.
Json parse_json_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// Typed access to a member of an object; throws Error(kInput) naming `where` and the key.
int64_t json_int(const Json& object, const std::string& key, const std::string& where);
double json_number(const Json& object, const std::string& key, const std::string& where);
std::string json_string(const Json& object, const std::string& key, const std::string& where);

// Shortest text that reads back as the same float or double; NaN and infinities as null.
std::string format_float(float value);
std::string format_double(double value);

}  // namespace slimexx
