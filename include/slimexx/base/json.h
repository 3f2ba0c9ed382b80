// Strict JSON for external files: UTF-8, no duplicate keys, bounded depth, errors with the byte
// offset. Keeps the order of keys. Include <nlohmann/json.hpp> in sources that traverse the value.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace slimexx {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 128;

// Treatment of integers beyond 64 bits: round to the nearest double, or throw Error(kInput). User
// data uses kRefuse: otherwise a label would silently become another number.
enum class WideIntegers { kRound, kRefuse };

// Parses all of `text`; throws Error(kInput) with `where`, the byte offset and, for a duplicate,
// the key. Rejects a byte-order mark, comments and trailing text.
Json parse_json(std::string_view text, const std::string& where,
                WideIntegers wide_integers = WideIntegers::kRound);

// read_text_file + parse_json.
Json parse_json_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// Typed access to a member of an object; throws Error(kInput) with `where` and the key.
int64_t json_int(const Json& object, const std::string& key, const std::string& where);
double json_number(const Json& object, const std::string& key, const std::string& where);
std::string json_string(const Json& object, const std::string& key, const std::string& where);

// The shortest text that parses to the same float or double; NaN and infinities become null.
std::string format_float(float value);
std::string format_double(double value);

}  // namespace slimexx
