#include "io/safetensors/safetensors_sax.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "io/quote_name.h"
#include "io/safetensors/safetensors_header.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr size_t kMaxTokenBytes = size_t{4} << 20;

class HeaderSax : public nlohmann::json_sax<Json> {
 public:
  HeaderSax(const std::string& path, RawHeader& out) : path_(path), out_(out) {}

  bool null() override {
    if (state_ == State::kTop && in_metadata_) return true;
    return skip_scalar("null");
  }
  bool boolean(bool) override { return skip_scalar("a boolean"); }
  bool number_integer(int64_t v) override { return skip_scalar(fmt::format("{}", v)); }
  bool number_float(double, const std::string& text) override { return skip_scalar(text); }
  bool binary(binary_t&) override { return false; }

  bool number_unsigned(uint64_t v) override {
    if (state_ == State::kShape) {
      auto& shape = tensor().entry.shape;
      if (v > uint64_t{INT64_MAX}) fail(fmt::format("dimension {} is too large", v));
      if (shape.size() == kMaxRank) fail(fmt::format("more than {} dimensions", kMaxRank));
      shape.push_back(static_cast<int64_t>(v));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (offsets_read_ == 2) fail("data_offsets holds more than two numbers");
      (offsets_read_++ == 0 ? tensor().entry.begin : tensor().entry.end) = v;
      return true;
    }
    return skip_scalar(fmt::format("{}", v));
  }

  bool string(std::string& v) override {
    if (state_ == State::kMetadata) {
      if (!out_.metadata.emplace(key_, v).second) {
        fail(fmt::format("duplicate metadata key {}", quote_name(key_)));
      }
      return true;
    }
    if (state_ == State::kTensor && field_ == Field::kDType) {
      tensor().type = find_element_type(v);
      if (!tensor().type) fail(fmt::format("unknown dtype {}", quote_name(v)));
      return true;
    }
    return skip_scalar(quote_name(v));
  }

  bool key(std::string& k) override {
    if (state_ == State::kTop) {
      start_member(k);
    } else if (state_ == State::kMetadata) {
      key_ = k;
    } else if (state_ == State::kTensor) {
      start_field(k);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      state_ = in_metadata_ ? State::kMetadata : State::kTensor;
    } else {
      enter_skipped("an object");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == State::kTensor && field_ == Field::kShape) {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && field_ == Field::kOffsets) {
      state_ = State::kOffsets;
      offsets_read_ = 0;
    } else {
      enter_skipped("an array");
    }
    return true;
  }

  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    std::string reason = e.what();
    if (const auto at = reason.find("] "); at != std::string::npos) reason = reason.substr(at + 2);
    reason = replace_invalid_utf8(std::string_view(reason).substr(0, 300));
    throw Error(ErrorCode::kInput,
                fmt::format("the header is not valid JSON at byte {} of the file: {}",
                            kHeaderLengthBytes + position, reason),
                "fetch or write the file again", path_);
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kSkip, kDone };
  enum class Field { kDType, kShape, kOffsets, kOther };

  RawTensor& tensor() { return out_.tensors.back(); }

  [[noreturn]] void fail(const std::string& what) {
    const bool inside = !out_.tensors.empty() && !in_metadata_ && state_ != State::kStart;
    throw Error(ErrorCode::kInput,
                inside ? fmt::format("tensor {}: {}", quote_name(tensor().entry.name), what)
                       : fmt::format("safetensors header: {}", what),
                "fetch the file again, or write it with a safetensors library", path_);
  }

  void start_member(const std::string& k) {
    in_metadata_ = k == kMetadataKey;
    if (!in_metadata_) {
      out_.tensors.emplace_back().entry.name = k;
    } else if (std::exchange(metadata_seen_, true)) {
      fail("duplicate key \"__metadata__\"");
    }
  }

  void start_field(const std::string& k) {
    RawTensor& t = tensor();
    bool seen = false;
    if (k == "dtype") {
      field_ = Field::kDType;
      seen = t.type != nullptr;
    } else if (k == "shape") {
      field_ = Field::kShape;
      seen = std::exchange(t.has_shape, true);
    } else if (k == "data_offsets") {
      field_ = Field::kOffsets;
      seen = std::exchange(t.has_offsets, true);
    } else {
      field_ = Field::kOther;  // ignored, as in the reference
    }
    if (seen) fail(fmt::format("duplicate key \"{}\"", k));
  }

  bool skipping() const {
    return state_ == State::kSkip || (state_ == State::kTensor && field_ == Field::kOther);
  }
  bool skip_scalar(const std::string& found) {
    if (!skipping()) fail(fmt::format("{} is not expected {}", found, place()));
    return true;
  }
  void enter_skipped(const char* found) {
    if (!skipping()) fail(fmt::format("{} is not expected {}", found, place()));
    state_ = State::kSkip;
    if (++skip_depth_ > kMaxJsonDepth - 2) {
      fail(fmt::format("the JSON text is nested deeper than {}", kMaxJsonDepth));
    }
  }
  std::string place() const {
    switch (state_) {
      case State::kStart:
        return "in place of the header object";
      case State::kTop:
        return in_metadata_ ? "as __metadata__" : "in place of an object";
      case State::kMetadata:
        return fmt::format("as metadata {}", quote_name(key_));
      case State::kShape:
        return "in shape";
      case State::kOffsets:
        return "in data_offsets";
      default:
        break;
    }
    return field_ == Field::kDType   ? "as dtype"
           : field_ == Field::kShape ? "as shape"
                                     : "as data_offsets";
  }

  bool leave() {
    switch (state_) {
      case State::kSkip:
        if (--skip_depth_ == 0) state_ = State::kTensor;
        break;
      case State::kOffsets:
        if (offsets_read_ != 2) fail("data_offsets holds fewer than two numbers");
        [[fallthrough]];
      case State::kShape:
        state_ = State::kTensor;
        break;
      case State::kTensor:
        if (!tensor().type) fail("key \"dtype\" is missing");
        if (!tensor().has_shape) fail("key \"shape\" is missing");
        if (!tensor().has_offsets) fail("key \"data_offsets\" is missing");
        [[fallthrough]];
      case State::kMetadata:
        state_ = State::kTop;
        break;
      default:
        state_ = State::kDone;
        break;
    }
    return true;
  }

  const std::string& path_;
  RawHeader& out_;
  State state_ = State::kStart;
  Field field_ = Field::kOther;
  std::string key_;
  bool in_metadata_ = false, metadata_seen_ = false;
  int offsets_read_ = 0, skip_depth_ = 0;
};

// Refuses text that the JSON library would accept (a byte-order mark; a NUL byte, which it treats
// as the end) or copy several times (one huge string or number).
void check_raw_text(std::string_view json, const std::string& path) {
  const auto refuse = [&](size_t at, const std::string& what) {
    throw Error(ErrorCode::kInput,
                fmt::format("the header is not valid JSON at byte {} of the file: {}",
                            kHeaderLengthBytes + at, what),
                "fetch or write the file again", path);
  };
  if (json.starts_with("\xEF\xBB\xBF")) refuse(0, "it starts with a byte-order mark");
  if (const size_t at = json.find('\0'); at != json.npos) refuse(at, "a NUL byte");
  bool in_string = false, escaped = false;
  size_t start = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      in_string = true;
      start = i;
    } else if (std::string_view("{}[],: \t\n\r").find(c) != std::string_view::npos) {
      start = i;
    }
    if (i - start > kMaxTokenBytes) {
      refuse(start, fmt::format("a string or number of over {} bytes", kMaxTokenBytes));
    }
  }
}

}  // namespace

RawHeader read_header_json(std::string_view json, const std::string& path) {
  check_raw_text(json, path);
  RawHeader header;
  HeaderSax sax(path, header);
  Json::sax_parse(json.begin(), json.end(), &sax);
  return header;
}

}  // namespace slimexx::io
