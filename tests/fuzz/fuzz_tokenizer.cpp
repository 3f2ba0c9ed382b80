// Input: a tokenizer.json, a zero byte (or the end), and a text. Parsing must give a tokenizer or
// an Error, and a tokenizer must encode, decode and stream any text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/text/tokenizer.h"

namespace {

using slimexx::text::StreamDecoder;
using slimexx::text::TokenId;
using slimexx::text::Tokenizer;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void exercise(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {true, false}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse_special});
    for (const TokenId id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size(), "ids are in the vocabulary");
    }
    require(ids == tokenizer.encode(text, {.parse_special = parse_special}), "encoding repeats");
    const std::string decoded = tokenizer.decode(ids);
    require(slimexx::is_valid_utf8(decoded), "decoded text is UTF-8");
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      require(slimexx::is_valid_utf8(piece), "streamed pieces are UTF-8");
      streamed += piece;
    }
    require(streamed + stream.flush() == decoded, "streaming gives the decoded text");
  }
  // Ids in an order that no text gives.
  std::vector<TokenId> all;
  for (TokenId id = 0; id < tokenizer.vocab_size() && id < 600; ++id) all.push_back(id);
  require(slimexx::is_valid_utf8(tokenizer.decode(all, true)), "any ids decode to UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view json = input.substr(0, cut);
  const std::string_view text = cut == std::string_view::npos ? json : input.substr(cut + 1);
  try {
    exercise(Tokenizer::parse(json, "fuzz"), text);
  } catch (const slimexx::Error&) {
  }
  return 0;
}
