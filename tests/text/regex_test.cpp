#include "text/regex.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "test_paths.h"

namespace slimexx::text {
namespace {

std::vector<Json> read_cases(bool faults) {
  const std::string path = test_data_path("text/regex_test.jsonl");
  std::vector<Json> cases;
  for (const auto& line : split(read_text_file(path), '\n')) {
    if (line.empty()) continue;
    Json row = parse_json(line, path);
    if (row.contains("error") == faults) cases.push_back(std::move(row));
  }
  return cases;
}

// The matches as the tokenizers library finds them; the empty ones are left out.
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
    std::string message = "no error";
    try {
      Regex::compile(pattern, "here");
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(want), std::string::npos) << pattern << ": " << message;
    EXPECT_EQ(message.find("backtrack"), std::string::npos) << pattern << ": " << message;
  }
}

}  // namespace
}  // namespace slimexx::text
