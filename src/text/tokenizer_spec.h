// A value inside tokenizer.json, with its key path for errors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace slimexx::text {

// The hint of most errors about the file.
inline constexpr const char* kTokenizerHint =
    "fix the file there, or download it again with the model";

class TokenizerSpec {
 public:
  // The value must outlive the spec. `path` is the key path, as in pre_tokenizer.pretokenizers[1].
  TokenizerSpec(const Json& value, std::string file, std::string path);

  const std::string& path() const { return path_; }
  std::string where() const;
  Error error(const std::string& what, const std::string& hint = kTokenizerHint) const;

  bool is_null() const;
  // A member that is present and not null; nullopt otherwise.
  std::optional<TokenizerSpec> find(const std::string& key) const;
  TokenizerSpec at(const std::string& key) const;
  // The elements of an array member.
  std::vector<TokenizerSpec> elements(const std::string& key) const;

  std::string type() const { return string("type"); }
  std::string string(const std::string& key) const;
  std::string string_or(const std::string& key, const std::string& otherwise) const;
  bool boolean(const std::string& key) const;
  bool boolean_or(const std::string& key, bool otherwise) const;
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const Json& value_;
  std::string file_;
  std::string path_;
};

}  // namespace slimexx::text
