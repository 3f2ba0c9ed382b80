#include "slimexx/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/philox.h"
#include "slimexx/base/strings.h"
#include "test_paths.h"
#include "text/outcomes.h"
#include "text/unicode_form.h"

namespace slimexx::text {
namespace {

using Ids = std::vector<TokenId>;

const std::string kHere = test_data_path("text/");
const std::string kVectors = test_data_path("golden/tokenizers/vectors/");

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> lines;
  for (const auto& line : split(read_text_file(path), '\n')) {
    if (!line.empty()) lines.push_back(parse_json(line, path));
  }
  return lines;
}

Tokenizer fixture(const std::string& name) {
  return Tokenizer::load(kHere + "tokenizers/" + name + ".json");
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string out;
  for (const TokenId id : ids) out += decoder.push(id);
  return out + decoder.flush();
}

TEST(Tokenizer, AgreesWithTheReferenceLibrary) {
  std::map<std::string, Tokenizer> tokenizers;
  int cases = 0;
  for (const Json& line : read_lines(kHere + "tokenizer_test.jsonl")) {
    const std::string name = line["tokenizer"];
    if (!tokenizers.contains(name)) tokenizers.emplace(name, fixture(name));
    const Tokenizer& tokenizer = tokenizers.at(name);
    const std::string text = line["text"];
    SCOPED_TRACE(name + " " + Json(text).dump(-1, ' ', true));
    const Ids ids = line["ids"];
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}), line.value("plain", ids));
    const std::string decoded = line["decoded"];
    const std::string skipped = line.value("skipped", decoded);
    EXPECT_EQ(tokenizer.decode(ids), decoded);
    EXPECT_EQ(tokenizer.decode(ids, true), skipped);
    EXPECT_EQ(stream(tokenizer, ids, false), decoded);
    EXPECT_EQ(stream(tokenizer, ids, true), skipped);
    ++cases;
  }
  EXPECT_GT(cases, 800);
}

TEST(Tokenizer, AgreesWithThePublishedVectors) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"qwen3", "qwen3.llamacpp"},
      {"qwen3", "qwen3.generated"},
      {"gpt2", "gpt2.llamacpp"},
      {"gpt2", "gpt2.generated"},
      {"glm-4.5", "glm-4-0414.generated"}};
  std::map<std::string, Tokenizer> tokenizers;
  for (const auto& [name, vectors] : pairs) {
    if (!tokenizers.contains(name))
      tokenizers.emplace(name, Tokenizer::load(real_tokenizer_path(name)));
    int cases = 0;
    for (const Json& line : read_lines(kVectors + vectors + ".jsonl")) {
      const std::string text = line["text"];
      SCOPED_TRACE(vectors + " " + Json(text).dump(-1, ' ', true));
      const Ids got = tokenizers.at(name).encode(text);
      // These vectors were made with a vocabulary that has fewer added tokens.
      if (name == "glm-4.5" && got != tokenizers.at(name).encode(text, {.parse_special = false}))
        continue;
      if (name == "glm-4.5" &&
          std::any_of(got.begin(), got.end(), [](TokenId id) { return id >= 151329; }))
        continue;
      EXPECT_EQ(got, line["ids"].get<Ids>());
      ++cases;
    }
    EXPECT_GT(cases, 40) << vectors;
  }
}

TEST(Tokenizer, FaultyFilesAreNamed) {
  for (const Json& line : read_lines(kHere + "tokenizer_faults.jsonl")) {
    const std::string name = line["name"];
    const std::string message = message_of(
        [&] { Tokenizer::parse(line["json"].get<std::string>(), "some/tokenizer.json"); });
    EXPECT_NE(message.find(line["error"].get<std::string>()), std::string::npos)
        << name << ": " << message;
    EXPECT_NE(message.find("some/tokenizer.json"), std::string::npos) << name << ": " << message;
    const bool of_json = message.find("key \"") != std::string::npos ||
                         message.find("JSON") != std::string::npos;  // base/json.cpp's
    EXPECT_TRUE(of_json || message.find("hint: ") != std::string::npos) << name << ": " << message;
  }
}

// Compares with ids of the tokenizers library, which drops the characters that encode refuses.
TEST(Tokenizer, RefusesTextsThatNeedALackingByte) {
  for (const Json& line : read_lines(kHere + "tokenizer_lost_bytes.jsonl")) {
    SCOPED_TRACE(line["name"].get<std::string>());
    const Tokenizer tokenizer = Tokenizer::parse(line["json"].get<std::string>(), "tokenizer.json");
    for (const Json& refused : line["refused"]) {
      const std::string message =
          message_of([&] { tokenizer.encode(refused[0].get<std::string>()); });
      for (int part : {1, 2})
        EXPECT_NE(message.find(refused[part].get<std::string>()), std::string::npos) << message;
    }
    for (const Json& encoded : line["encoded"])
      EXPECT_EQ(tokenizer.encode(encoded[0].get<std::string>()), encoded[1].get<Ids>());
  }
}

TEST(Tokenizer, EveryTruncationIsAnError) {
  const std::string json = read_text_file(kHere + "tokenizers/affix.json");
  const size_t end = json.rfind('}');
  for (size_t n = 0; n <= end; ++n) {
    EXPECT_THROW(Tokenizer::parse(json.substr(0, n), "x"), Error) << n;
  }
}

TEST(Tokenizer, EveryByteValueIsSurvivedAndValidTextRoundTrips) {
  const Tokenizer tokenizer = fixture("llama3");
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(every)), replace_invalid_utf8(every));
  for (const char* name : {"llama3", "deepseek", "falcon", "tekken"}) {
    const Tokenizer other = fixture(name);
    PhiloxStream random(17, 0);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 12; ++i) {
        const uint32_t c = random.next_word() % (i % 3 == 0   ? 0x11000u
                                                 : i % 3 == 1 ? 0x80u
                                                              : 0x3000u);
        if (c < 0xD800 || c > 0xDFFF) append_utf8(text, c);
      }
      EXPECT_EQ(other.decode(other.encode(text)), text) << name << " seed 17 round " << round;
    }
  }
}

TEST(Tokenizer, StreamingNeverSplitsACharacter) {
  const Tokenizer tokenizer = Tokenizer::parse(make_byte_level_tokenizer_json({}), "bytes");
  PhiloxStream random(5, 0);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) {
      static constexpr int kLeads[] = {0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC3, 0xE0,
                                       0xE4, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF};
      ids.push_back(kLeads[random.next_word() % 16]);
    }
    std::string bytes, out;
    StreamDecoder decoder(tokenizer);
    for (const TokenId id : ids) {
      bytes += static_cast<char>(id);
      const std::string piece = decoder.push(id);
      EXPECT_TRUE(is_valid_utf8(piece));
      out += piece;
    }
    EXPECT_EQ(out + decoder.flush(), replace_invalid_utf8(bytes)) << "seed 5 round " << round;
    EXPECT_EQ(tokenizer.decode(ids), replace_invalid_utf8(bytes));
  }
  StreamDecoder decoder(tokenizer);
  for (const int byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(decoder.push(byte), "");
  EXPECT_EQ(decoder.push(0x80), "\xF0\x9F\x98\x80");
}

TEST(Tokenizer, ByteLevelTokenizerOfTheQuickstart) {
  const Tokenizer tokenizer =
      Tokenizer::parse(make_byte_level_tokenizer_json({"<|user|>", "<|end|>"}), "bytes");
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.encode("a\xC3\xA9 <|end|>"), (Ids{'a', 0xC3, 0xA9, ' ', 257}));
  EXPECT_EQ(tokenizer.encode("<|end|>", {.parse_special = false}).size(), 7u);
  EXPECT_EQ(tokenizer.decode(Ids{256, 'h', 'i', 257}, true), "hi");
  EXPECT_EQ(tokenizer.decode(Ids{256, 'h', 'i', 257}), "<|user|>hi<|end|>");
  EXPECT_TRUE(tokenizer.is_special(257));
  EXPECT_FALSE(tokenizer.is_special('a'));
  EXPECT_EQ(tokenizer.token_to_id("<|user|>"), 256);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(257), "<|end|>");
  for (const TokenId id : {-1, 258, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer.token_bytes(id), Error);
    EXPECT_THROW(tokenizer.decode(Ids{id}), Error);
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  EXPECT_THROW(make_byte_level_tokenizer_json({"a"}), Error);
  EXPECT_THROW(make_byte_level_tokenizer_json({""}), Error);
  EXPECT_THROW(make_byte_level_tokenizer_json({"<x>", "<x>"}), Error);
  EXPECT_THROW(make_byte_level_tokenizer_json({"\xFF"}), Error);
}

TEST(Tokenizer, HolesDecodeToNothing) {
  const Tokenizer tokenizer = Tokenizer::parse(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":5},"merges":[]},"decoder":{"type":"Fuse"}})",
      "x");
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.decode(Ids{0, 3, 5}), "ab");
  EXPECT_EQ(tokenizer.token_bytes(3), "");
}

TEST(Tokenizer, BytesThatNoTextHoldsMayBeMissing) {
  // The bytes C0, C1 and F5 to FF, which never occur in UTF-8, may lack tokens. If there is an
  // unknown token, any byte may.
  Json file = parse_json(make_byte_level_tokenizer_json({}), "bytes");
  for (const int byte : {0xC0, 0xC1, 0xF5, 0xFF}) {
    const auto& vocab = file["model"]["vocab"];
    const auto at = std::find(vocab.begin(), vocab.end(), Json(byte));
    file["model"]["vocab"].erase(at.key());
  }
  EXPECT_EQ(Tokenizer::parse(file.dump(), "x").encode("h\xC3\xA9"), (Ids{'h', 0xC3, 0xA9}));
  file["model"]["vocab"].erase("h");
  EXPECT_NE(message_of([&] { Tokenizer::parse(file.dump(), "x").encode("h"); }).find("0x68"),
            std::string::npos);
  file["model"]["vocab"]["<unk>"] = 300;
  file["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(Tokenizer::parse(file.dump(), "x").encode("hi"), (Ids{300, 'i'}));
}

TEST(Tokenizer, NormalizersThatBlowATextUpAreStopped) {
  const auto make = [](const std::string& step, int count) {
    std::string steps;
    for (int i = 0; i < count; ++i) steps += (i == 0 ? "" : ",") + step;
    return Tokenizer::parse(R"({"normalizer":{"type":"Sequence","normalizers":[)" + steps +
                                R"(]},"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})",
                            "file");
  };
  const std::string doubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const std::string long_prefix =
      R"({"type":"Prepend","prepend":")" + std::string(5000, 'b') + R"("})";
  for (const auto& [tokenizer_step, count, place] :
       {std::tuple{doubling, 40, "normalizer.normalizers[10]"},
        std::tuple{long_prefix, 1, "normalizer.normalizers[0]"}}) {
    const Tokenizer tokenizer = make(tokenizer_step, count);
    const std::string message = message_of([&] { tokenizer.encode("a"); });
    EXPECT_NE(message.find(std::string("file: ") + place), std::string::npos) << message;
    EXPECT_NE(message.find("1056 bytes from a text of 1"), std::string::npos) << message;
    EXPECT_NE(message.find("hint: "), std::string::npos) << message;
  }
  // The longest compatibility expansion stays far below the limit.
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xEF\xB7\xBA";  // U+FDFA, 18 characters
  EXPECT_EQ(
      make(R"({"type":"NFKC"},{"type":"Replace","pattern":{"String":" "},"content":"aaa"})", 1)
          .encode(text)
          .size(),
      9000u);
}

TEST(Tokenizer, TextsBeyondTheLimitAreRefused) {
  const Tokenizer tokenizer = Tokenizer::parse(make_byte_level_tokenizer_json({}), "bytes");
  const std::string message =
      message_of([&] { tokenizer.encode(std::string((size_t{32} << 20) + 1, 'a')); });
  EXPECT_NE(message.find("too long to be tokenized in one piece"), std::string::npos) << message;
  EXPECT_NE(message.find("32.0 MiB"), std::string::npos) << message;
}

TEST(Tokenizer, LongWordsStayNearLinear) {
  const Tokenizer tokenizer = fixture("llama3");
  for (const char* unit : {"a", "the", " ", "\n", "7", "\xE6\x95\xB0"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    Ids ids;
    const double seconds = seconds_of([&] { ids = tokenizer.encode(text); });
    EXPECT_EQ(tokenizer.decode(ids), text) << unit;
    EXPECT_LT(seconds, 20.0) << unit;  // a quadratic merge needs hours
  }
}

TEST(Tokenizer, TenMegabytesOfWhiteSpaceOrOfOneWord) {
  const Tokenizer tokenizer = fixture("llama3");
  for (const char c : {' ', 'a'}) {
    const std::string text(10'000'000, c);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << c;
  }
}

TEST(Tokenizer, LongWordMergesEqualShortOnes) {
  // A long run of one character merges leftmost first, as in the short path.
  const Tokenizer tokenizer =
      Tokenizer::parse(R"({"model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaa":2,"aaaa":3,"b":4},)"
                       R"("merges":["a a","aa aa","aa a"]}})",
                       "x");
  for (const size_t n : {3u, 46u, 47u, 48u, 49u, 50u, 51u, 1001u}) {
    Ids want(n / 4, 3);
    if (n % 4 == 3) want.push_back(2);
    if (n % 4 == 2) want.push_back(1);
    if (n % 4 == 1) want.push_back(0);
    EXPECT_EQ(tokenizer.encode(std::string(n, 'a')), want) << n;
  }
}

TEST(Tokenizer, AddedTokensSwallowWhiteSpaceAsTheReferenceLibraryDoes) {
  const auto encode = [](const std::string& added, const std::string& text) {
    return Tokenizer::parse(R"({"added_tokens":[)" + added + R"(],"model":{"type":"BPE",)" +
                                R"("vocab":{"a":0,"b":1,"\n":2," ":3,"\ud803\udd4a":4},)" +
                                R"("merges":[]}})",
                            "x")
        .encode(text);
  };
  const std::string both = R"({"id":2,"content":"\n","special":true,"lstrip":true,"rstrip":true})";
  const std::string plain = R"({"id":2,"content":"\n","special":true})";
  const std::string x = R"({"id":5,"content":"<x>","special":true,"rstrip":true})";
  EXPECT_EQ(encode(both, "a\n\n\nb \n \n  b"), (Ids{0, 2, 1, 2, 1}));
  EXPECT_EQ(encode(x + "," + plain, "<x>\n b<x>\n\n"), (Ids{5, 2, 3, 1, 5, 2, 2}));
  EXPECT_EQ(encode(x + "," + both, "<x>\n b"), (Ids{5, 1}));
  // U+10D4A, a letter of Unicode 16.
  const std::string single = R"({"id":5,"content":"ab","special":true,"single_word":true})";
  EXPECT_EQ(encode(single, "ab\xF0\x90\xB5\x8A ab"), (Ids{0, 1, 4, 3, 5}));
}

TEST(Tokenizer, WhitespaceCutsWordsAsRustDoes) {
  // A numeric character that is not a digit is not part of a word; a joiner is.
  const Tokenizer tokenizer = Tokenizer::parse(
      R"({"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"BPE",)"
      R"("vocab":{"\u00ab":0,"\u00bd":1,"\u00ab\u00bd":2,"a":3,"\u200d":4,"a\u200d":5},)"
      R"("merges":["\u00ab \u00bd","a \u200d"]}})",
      "x");
  EXPECT_EQ(tokenizer.encode("\xC2\xAB\xC2\xBD"), Ids{2});
  EXPECT_EQ(tokenizer.encode("a\xE2\x80\x8D"), Ids{5});
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = fixture("mistral");
  const Tokenizer other = fixture("qwen");
  const std::string text = "The quick brown fox \xE6\x95\xB0\xE5\xAD\xA6 [INST] 123 don't";
  const Ids want = tokenizer.encode(text), want_other = other.encode(text);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        wrong[t] += tokenizer.encode(text) != want;
        wrong[t] += other.encode(text) != want_other;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(UnicodeForm, RunsOfMarksStayNearLinear) {
  std::string text = "a";
  for (int i = 0; i < 300'000; ++i) text += i % 2 ? "\xCC\x96" : "\xCC\x81";  // classes 220, 230
  std::string out;
  EXPECT_LT(seconds_of([&] { out = to_unicode_form(text, UnicodeForm::kNfc); }), 10.0);
  EXPECT_EQ(out.substr(0, 4), "\xC3\xA1\xCC\x96");
  EXPECT_EQ(to_unicode_form("\xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3", UnicodeForm::kNfkc),
            "fi \xE1\xB9\xA9");
  EXPECT_EQ(to_unicode_form("\xEA\xB0\x81", UnicodeForm::kNfd),
            "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8");
}

}  // namespace
}  // namespace slimexx::text
