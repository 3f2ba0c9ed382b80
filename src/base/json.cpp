#include "slimexx/base/json.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/printable.h"

namespace slimexx {
namespace {

constexpr const char* kSyntaxHint =
    "fix the text there; if the file is truncated, fetch or write it again";

// Builds the value and refuses deep nesting and duplicate keys; the library accepts both. A stack
// of pointers into the growing value holds the open containers; a parent does not grow while a
// child is open, so the pointers stay valid.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(const std::string& where, WideIntegers wide_integers, Json& root)
      : where_(where), wide_integers_(wide_integers), root_(root) {}
  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  // The library also calls this for integers that do not fit 64 bits.
  bool number_float(number_float_t v, const string_t& text) override {
    if (wide_integers_ == WideIntegers::kRefuse && text.find_first_of(".eE") == std::string::npos) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the integer {} does not fit in 64 bits", text.substr(0, 200)),
                  "write it in quotes, as text", where_);
    }
    return put(v);
  }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    if (!open_.back().keys.insert(k).second) {
      throw Error(ErrorCode::kInput, fmt::format("duplicate key \"{}\"", k.substr(0, 200)),
                  "remove one of the two", where_);
    }
    key_ = k;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    std::string reason = e.what();
    if (const auto at = reason.find("] "); at != std::string::npos) reason = reason.substr(at + 2);
    throw Error(ErrorCode::kInput,
                fmt::format("not valid JSON at byte {}: {}", position, make_printable(reason)),
                kSyntaxHint, where_);
  }

 private:
  struct Level {
    Json* value;
    std::unordered_set<std::string> keys;
  };
  template <class V>
  Json* place(V&& value) {
    if (open_.empty()) {
      root_ = std::forward<V>(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::forward<V>(value));
      return &parent.back();
    }
    // Appends to the underlying vector: ordered_json's own insert is linear in the object's size,
    // and duplicates have been checked already.
    auto& object = parent.get_ref<Json::object_t&>();
    static_cast<std::vector<std::pair<const std::string, Json>>&>(object).emplace_back(
        key_, std::forward<V>(value));
    return &object.back().second;
  }
  template <class V>
  bool put(V&& value) {
    place(Json(std::forward<V>(value)));
    return true;
  }
  bool open(Json&& container) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the JSON text is nested deeper than {}", kMaxJsonDepth),
                  "flatten the value, or keep it as text", where_);
    }
    Json* placed = place(std::move(container));
    open_.push_back({placed, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  WideIntegers wide_integers_;
  Json& root_;
  std::vector<Level> open_;
  std::string key_;
};

const Json& member(const Json& object, const std::string& key, const std::string& where) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it != object.end()) return *it;
  }
  throw Error(ErrorCode::kInput, fmt::format("key \"{}\" is missing", key),
              fmt::format("add \"{}\", or check that this is the right file", key), where);
}

[[noreturn]] void wrong_type(const Json& value, const std::string& key, const char* wanted,
                             const std::string& where) {
  throw Error(ErrorCode::kInput,
              fmt::format("key \"{}\" must be {}, not {}", key, wanted,
                          value.is_number() ? value.dump() : value.type_name()),
              fmt::format("write {} there", wanted), where);
}

template <class T>
std::string shortest(T value) {
  if (!std::isfinite(value)) return "null";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, WideIntegers wide_integers) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    throw Error(ErrorCode::kInput, "the text starts with a byte-order mark",
                "save it as plain UTF-8", where);
  }
  // The library treats NUL as the end of the input.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error(ErrorCode::kInput, fmt::format("not valid JSON at byte {}: NUL", nul), kSyntaxHint,
                where);
  }
  Json root;
  StrictBuilder builder(where, wide_integers, root);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

Json parse_json_file(const std::string& path, uint64_t max_bytes) {
  return parse_json(read_text_file(path, max_bytes), path);
}

int64_t json_int(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number_integer()) wrong_type(value, key, "an integer", where);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    wrong_type(value, key, "an integer below 2^63", where);
  return value.get<int64_t>();
}

double json_number(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number()) wrong_type(value, key, "a number", where);
  return value.get<double>();
}

std::string json_string(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) wrong_type(value, key, "a string", where);
  return value.get<std::string>();
}

std::string format_float(float value) { return shortest(value); }
std::string format_double(double value) { return shortest(value); }

}  // namespace slimexx
