#include "text/tokenizer_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "slimexx/base/error.h"

namespace slimexx::text {
namespace {

// Inside model.vocab or model.merges events fill the flat lists; elsewhere they build the document.
// A stack holds pointers to the open containers. A parent does not grow while a child is open, so
// the pointers stay valid.
class Reader : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(RawTokenizer& out) : out_(out) {}

  bool null() override { return value(nullptr, "null"); }
  bool boolean(bool v) override { return value(v, "a boolean"); }
  bool number_float(number_float_t v, const string_t&) override { return value(v, "a fraction"); }
  bool binary(binary_t&) override { return false; }

  bool number_integer(number_integer_t v) override {
    if (part_ == Part::kVocab) fail(fmt::format("the id of \"{}\" is negative: {}", key_, v));
    return value(v, "a number");
  }

  bool number_unsigned(number_unsigned_t v) override {
    if (part_ != Part::kVocab) return value(v, "a number");
    if (v > uint64_t{INT32_MAX}) fail(fmt::format("the id of \"{}\" is too large: {}", key_, v));
    out_.vocab.emplace_back(std::move(key_), static_cast<int64_t>(v));
    return true;
  }

  bool string(string_t& v) override {
    if (part_ == Part::kMerges) {
      add_merge_line(v);
      return true;
    }
    if (part_ == Part::kPair) {
      if (pair_size_ == 2) fail_merge("has more than two parts");
      (pair_size_++ == 0 ? out_.merges.back().first : out_.merges.back().second) = std::move(v);
      return true;
    }
    return value(std::move(v), "a string");
  }

  bool key(string_t& k) override {
    if (part_ == Part::kDocument && !open_.back().keys.insert(k).second) {
      fail(fmt::format("duplicate key \"{}\"", k.substr(0, 200)));
    }
    key_ = std::move(k);
    return true;
  }

  bool start_object(std::size_t) override {
    if (part_ == Part::kDocument && is_model_member("vocab")) {
      out_.has_vocab = true;
      part_ = Part::kVocab;
      return true;
    }
    return open(Json::object(), "an object");
  }

  bool end_object() override { return close(); }

  bool start_array(std::size_t) override {
    if (part_ == Part::kMerges) {
      out_.merges.emplace_back();
      pair_size_ = 0;
      part_ = Part::kPair;
      return true;
    }
    if (part_ == Part::kDocument && is_model_member("merges")) {
      out_.has_merges = true;
      part_ = Part::kMerges;
      return true;
    }
    return open(Json::array(), "an array");
  }

  bool end_array() override {
    if (part_ == Part::kPair) {
      if (pair_size_ != 2) fail_merge("has fewer than two parts");
      part_ = Part::kMerges;
      return true;
    }
    return close();
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    std::string reason = e.what();
    if (const auto at = reason.find("] "); at != std::string::npos) reason = reason.substr(at + 2);
    fail(fmt::format("not valid JSON at byte {}: {}", position, reason.substr(0, 300)));
  }

 private:
  enum class Part { kDocument, kVocab, kMerges, kPair };
  struct Level {
    Json* value;
    std::string name;  // the key in its parent
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInput, what, "fetch the file again", out_.where);
  }
  [[noreturn]] void fail_merge(const std::string& what) const {
    fail(fmt::format("model.merges[{}] {}", out_.merges.size() - 1, what));
  }

  bool is_model_member(const char* name) const {
    return open_.size() == 2 && open_[1].name == "model" && open_[1].value->is_object() &&
           key_ == name;
  }

  void add_merge_line(const std::string& line) {
    // The version line of a merges.txt that was copied with the merges.
    if (line.rfind("#version", 0) == 0) return;
    const size_t space = line.find(' ');
    out_.merges.emplace_back();
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail_merge(fmt::format("must be two parts and one space: \"{}\"", line.substr(0, 200)));
    }
    out_.merges.back() = {line.substr(0, space), line.substr(space + 1)};
  }

  template <class V>
  bool value(V&& v, const char* kind) {
    if (part_ == Part::kVocab)
      fail(fmt::format("the id of \"{}\" is {}", key_.substr(0, 200), kind));
    if (part_ == Part::kPair) fail_merge(fmt::format("holds {}", kind));
    if (part_ == Part::kMerges)
      fail(fmt::format("model.merges[{}] is {}", out_.merges.size(), kind));
    place(Json(std::forward<V>(v)));
    return true;
  }

  Json* place(Json&& v) {
    if (open_.empty()) {
      *out_.document = std::move(v);
      return out_.document.get();
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    // Append to the underlying vector: the key is known to be new.
    auto& object = parent.get_ref<Json::object_t&>();
    static_cast<std::vector<std::pair<const std::string, Json>>&>(object).emplace_back(
        key_, std::move(v));
    return &object.back().second;
  }

  bool open(Json&& container, const char* kind) {
    if (part_ != Part::kDocument) return value(nullptr, kind);
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      fail(fmt::format("the JSON text is nested deeper than {}", kMaxJsonDepth));
    }
    std::string name = open_.empty() || open_.back().value->is_array() ? std::string() : key_;
    Json* placed = place(std::move(container));
    open_.push_back({placed, std::move(name), {}});
    return true;
  }

  bool close() {
    if (part_ != Part::kDocument) {
      part_ = Part::kDocument;
    } else {
      open_.pop_back();
    }
    return true;
  }

  RawTokenizer& out_;
  std::vector<Level> open_;
  std::string key_;
  Part part_ = Part::kDocument;
  int pair_size_ = 0;
};

}  // namespace

RawTokenizer::RawTokenizer() : document(std::make_unique<Json>()) {}
RawTokenizer::RawTokenizer(RawTokenizer&&) noexcept = default;
RawTokenizer::~RawTokenizer() = default;

RawTokenizer read_tokenizer_json(std::string_view json, const std::string& where) {
  RawTokenizer raw;
  raw.where = where;
  if (json.substr(0, 3) == "\xEF\xBB\xBF") {
    throw Error(ErrorCode::kInput, "the text starts with a byte-order mark",
                "save it as plain UTF-8", where);
  }
  Reader reader(raw);
  Json::sax_parse(json.begin(), json.end(), &reader);
  if (!raw.document->is_object()) {
    throw Error(ErrorCode::kInput, "the file must hold a JSON object", "fetch the file again",
                where);
  }
  return raw;
}

}  // namespace slimexx::text
