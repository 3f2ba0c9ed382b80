#include "text/regex/regex.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "test_paths.h"
#include "text/outcomes.h"

namespace slimexx::text {
namespace {

std::vector<Json> read_cases(bool faults) {
  const std::string path = test_data_path("text/regex/regex_test.jsonl");
  std::vector<Json> cases;
  for (const auto& line : split(read_text_file(path), '\n')) {
    if (line.empty()) continue;
    Json row = parse_json(line, path);
    if (row.contains("error") == faults) cases.push_back(std::move(row));
  }
  return cases;
}

// The matches that the tokenizers library finds, without empty ones.
TEST(Regex, AgreesWithTheReferenceLibrary) {
  for (const Json& row : read_cases(false)) {
    const std::string pattern = row["pattern"], text = row["text"];
    SCOPED_TRACE(pattern);
    std::vector<TextRange> ranges;
    Regex::compile(pattern, "here").find_all(text, ranges);
    Json matches = Json::array();
    for (const TextRange& range : ranges) {
      if (range.begin < range.end) {
        matches.push_back(text.substr(range.begin, range.end - range.begin));
      }
    }
    EXPECT_EQ(matches, row["matches"]);
  }
}

TEST(Regex, RefusesByNameWhatItDoesNotCompute) {
  for (const Json& row : read_cases(true)) {
    const std::string pattern = row["pattern"], want = row["error"];
    const std::string message = message_of([&] { Regex::compile(pattern, "here"); });
    EXPECT_NE(message.find(want), std::string::npos) << pattern << ": " << message;
    EXPECT_EQ(message.find("backtrack"), std::string::npos) << pattern << ": " << message;
  }
}

TEST(Regex, ShortPatternsDoNotGrowWithoutBound) {
  for (const char* unit : {"\\b", "\\w"}) {
    std::string pattern;
    for (int i = 0; i < 30'000; ++i) pattern += unit;
    for (const auto& grown : {pattern, "[\\w" + pattern + "]" + pattern}) {
      const std::string message = message_of([&] { rewrite_regex(grown, "here"); });
      EXPECT_NE(message.find("more than 1 MiB"), std::string::npos) << message.substr(0, 200);
    }
  }
}

TEST(Regex, CatastrophicPatternsEndInAnError) {
  const std::string text(300'000, 'a');
  for (const char* pattern :
       {"(a+)+[bc]", "(a|a)*[bc]", "(?=.*[bc])c|a.*[bc]", "(.*)(.*)(.*)(.*)[bc]"}) {
    const Regex regex = Regex::compile(pattern, "here");
    std::vector<TextRange> matches;
    std::string message;
    const double seconds =
        seconds_of([&] { message = message_of([&] { regex.find_all(text, matches); }); });
    EXPECT_LT(seconds, 30.0) << pattern;  // unbounded, hours
    EXPECT_NE(message.find("at: here"), std::string::npos) << pattern << ": " << message;
  }
}

TEST(Regex, WhiteSpaceAndWordsAreUnicodes) {
  const auto count = [](const char* pattern, const std::string& text) {
    std::vector<TextRange> matches;
    Regex::compile(pattern, "here").find_all(text, matches);
    return matches.size();
  };
  EXPECT_EQ(count("\\s", "\xE1\xA0\x8E"), 0u);  // U+180E
  EXPECT_EQ(count("\\S", "\xE1\xA0\x8E"), 1u);
  EXPECT_EQ(count("[\\S]", "\xE1\xA0\x8E"), 1u);
  EXPECT_EQ(count("\\s", "\xC2\x85\xC2\xA0 \t\xE3\x80\x80"), 5u);
  EXPECT_EQ(count("[^\\s]", "\xC2\x85\xC2\xA0 \t\xE3\x80\x80"), 0u);
  EXPECT_EQ(count("\\w+", "a\xCC\x81_1 \xC2\xBD"), 2u);
  EXPECT_EQ(count("\\p{L}", "\xF0\xB1\x8D\x90"), 1u);  // U+31350, of Unicode 15
  EXPECT_EQ(count("[^\\p{L}]", "\xF0\xB1\x8D\x90"), 0u);
  EXPECT_EQ(count("\\u4e00+", "\xE4\xB8\x80\xE4\xB8\x80"), 1u);
  EXPECT_EQ(count("x*", "axxb"), 3u);
}

}  // namespace
}  // namespace slimexx::text
