#include "text/tokenizer_spec.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace slimexx::text {

TokenizerSpec::TokenizerSpec(const Json& value, std::string file, std::string path)
    : value_(value), file_(std::move(file)), path_(std::move(path)) {}

std::string TokenizerSpec::where() const {
  return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_);
}

Error TokenizerSpec::error(const std::string& what, const std::string& hint) const {
  return Error(ErrorCode::kInput, what, hint, where());
}

void TokenizerSpec::unsupported(const std::string& what) const {
  throw error(fmt::format("{} is not supported", what),
              "byte-level and byte-fallback BPE tokenizers are supported");
}

bool TokenizerSpec::is_null() const { return value_.is_null(); }

std::optional<TokenizerSpec> TokenizerSpec::find(const std::string& key) const {
  if (!value_.is_object())
    throw error(fmt::format("must be an object, not {}", value_.type_name()));
  const auto member = value_.find(key);
  if (member == value_.end() || member->is_null()) return std::nullopt;
  return TokenizerSpec(*member, file_, path_.empty() ? key : path_ + "." + key);
}

TokenizerSpec TokenizerSpec::at(const std::string& key) const {
  auto member = find(key);
  if (!member) throw error(fmt::format("key \"{}\" is missing", key));
  return *member;
}

std::vector<TokenizerSpec> TokenizerSpec::elements(const std::string& key) const {
  const TokenizerSpec list = at(key);
  if (!list.value_.is_array()) {
    throw list.error(fmt::format("must be an array, not {}", list.value_.type_name()));
  }
  std::vector<TokenizerSpec> specs;
  for (size_t i = 0; i < list.value_.size(); ++i) {
    specs.emplace_back(list.value_[i], file_, fmt::format("{}[{}]", list.path_, i));
  }
  return specs;
}

std::string TokenizerSpec::string(const std::string& key) const {
  at(key);
  return json_string(value_, key, where());
}

std::string TokenizerSpec::string_or(const std::string& key, const std::string& otherwise) const {
  return find(key) ? string(key) : otherwise;
}

bool TokenizerSpec::boolean(const std::string& key) const {
  const TokenizerSpec member = at(key);
  if (!member.value_.is_boolean()) {
    throw member.error(fmt::format("must be true or false, not {}", member.value_.type_name()));
  }
  return member.value_.get<bool>();
}

bool TokenizerSpec::boolean_or(const std::string& key, bool otherwise) const {
  return find(key) ? boolean(key) : otherwise;
}

int64_t TokenizerSpec::integer(const std::string& key) const {
  at(key);
  return json_int(value_, key, where());
}

double TokenizerSpec::number(const std::string& key) const {
  at(key);
  return json_number(value_, key, where());
}

}  // namespace slimexx::text
