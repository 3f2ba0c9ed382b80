#include "slimexx/text/name_pattern.h"

#include <fmt/format.h>

#include <cstdint>
#include <new>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "slimexx/base/error.h"

namespace slimexx::text {
namespace {

// Names have about a hundred characters, so a pattern that reads the name a few times from each
// start takes some thousand steps. The interpreter counts every step; the JIT compiler does not
// count those of simple repeats.
constexpr uint32_t kMostSteps = 100'000;

std::string message_of(int code) {
  unsigned char buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct NamePattern::Code {
  pcre2_code* compiled = nullptr;
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);

  Code() {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMostSteps);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_code_free(compiled);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

NamePattern::NamePattern(const std::string& pattern, const char* key)
    : text_(pattern), key_(key), code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), 0,
                                  &error, &offset, nullptr);
  if (code_->compiled != nullptr) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("\"{}\" is not a regular expression: {} at character {}", pattern,
                          message_of(error), offset + 1),
              "write \\. for a dot of a name, and \\[ for a bracket", key);
}
NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern& NamePattern::operator=(NamePattern&&) noexcept = default;
NamePattern::~NamePattern() = default;

bool NamePattern::is_found_in(const std::string& name) const {
  const int result = pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(name.data()),
                                 name.size(), 0, PCRE2_NO_JIT, code_->data, code_->context);
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  throw Error(ErrorCode::kUsage,
              fmt::format("\"{}\" takes too many steps on the name {}: {}", text_, name,
                          message_of(result)),
              "write the pattern without nested repeats, such as (.*)*", key_);
}

}  // namespace slimexx::text
