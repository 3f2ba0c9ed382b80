// Tokens of a template: text, and the content of {{ }} and {% %}. White space is already trimmed
// according to trim_blocks, lstrip_blocks and the - and + signs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace slimexx::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // text, name, operator, or decoded string
  Int integer = 0;
  double real = 0;
};

std::vector<Token> lex_template(std::string_view source, const std::string& where);

}  // namespace slimexx::text::jinja
