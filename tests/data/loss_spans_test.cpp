#include "data/loss_spans.h"

#include "data/data_fixture.h"
#include "test_paths.h"

namespace slimexx::data {
namespace {

using Mask = std::vector<uint8_t>;

// gpt2's byte-level tokenizer, if it is available: its tokens have more than one byte.
class LossSpans : public DataTest {
 protected:
  static Mask mask_of(const text::Tokenizer& tokenizer, const std::string& text, ByteSpans spans) {
    return mask_tokens(tokenizer, text, tokenizer.encode(text), spans, {});
  }
};

TEST_F(LossSpans, CountsTokensThatBeginWithin) {
  const auto tokenizer = make_tokenizer();
  EXPECT_EQ(mask_of(tokenizer, "abcd", {{1, 3}}), (Mask{0, 1, 1, 0}));
  EXPECT_EQ(mask_of(tokenizer, "abcd", {{0, 1}, {3, 4}}), (Mask{1, 0, 0, 1}));
  EXPECT_EQ(mask_of(tokenizer, "abcd", {}), (Mask{0, 0, 0, 0}));
  EXPECT_EQ(mask_of(tokenizer, "abcd", {{2, 2}}), (Mask{0, 0, 0, 0}));
  EXPECT_EQ(mask_of(tokenizer, "a<|end|>b", {{1, 8}}), (Mask{0, 1, 0}));
  EXPECT_EQ(mask_of(tokenizer, "a<|end|>b", {{2, 9}}), (Mask{0, 0, 1})) << "begins outside";
  EXPECT_EQ(mask_of(tokenizer, "a<|end|>b", {{0, 2}}), (Mask{1, 1, 0})) << "ends outside";
  EXPECT_EQ(mask_of(tokenizer, "\u00e9", {{1, 2}}), (Mask{0, 1}));
}

TEST_F(LossSpans, TakesAnEosRightBehindASpan) {
  const auto tokenizer = make_tokenizer();
  const std::vector<text::TokenId> eos = {*tokenizer.token_to_id("<|user|>"),
                                          *tokenizer.token_to_id("<|end|>")};
  const auto mask_with_eos = [&](const std::string& text, ByteSpans spans) {
    return mask_tokens(tokenizer, text, tokenizer.encode(text), spans, eos);
  };
  EXPECT_EQ(mask_with_eos("ab<|user|>c", {{1, 2}}), (Mask{0, 1, 1, 0}));
  EXPECT_EQ(mask_with_eos("ab<|assistant|>c", {{1, 2}}), (Mask{0, 1, 0, 0}));
  EXPECT_EQ(mask_with_eos("ab\n<|end|>", {{1, 2}}), (Mask{0, 1, 0, 0})) << "not right behind";
  EXPECT_EQ(mask_with_eos("ab<|end|><|user|>", {{1, 9}}), (Mask{0, 1, 1, 1}));
  const auto ends = [&](const std::string& text) {
    return ends_in_eos(tokenizer, tokenizer.encode(text), eos);
  };
  EXPECT_TRUE(ends("a<|end|> \n"));
  EXPECT_FALSE(ends("<|end|>a\n"));
  EXPECT_FALSE(ends("a<|assistant|>"));
  EXPECT_FALSE(ends(" \n"));
  EXPECT_FALSE(ends(""));
}

TEST_F(LossSpans, FollowsANormalizerThatChangesLengths) {
  const auto tokenizer = text::Tokenizer::load(real_tokenizer_path("qwen3"));  // normalizes to NFC
  const std::string decomposed = "cafe\u0301 cafe\u0301:";
  const std::string text = decomposed + "42";
  const auto tokens = tokenizer.encode(text);
  const auto begin = static_cast<int64_t>(decomposed.size());
  const Mask mask = mask_tokens(tokenizer, text, tokens, {{begin, begin + 2}}, {});
  std::string learnt;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (mask[i]) learnt += tokenizer.token_bytes(tokens[i]);
  }
  EXPECT_EQ(learnt, "42");
}

}  // namespace
}  // namespace slimexx::data
