#include "rollout/stop_matcher.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/philox.h"
#include "test_paths.h"

namespace slimexx::rollout {
namespace {

using Strings = std::vector<std::string>;

int find_end(const Strings& stops, const Strings& tokens) {
  StopMatcher matcher(stops);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (matcher.feed(tokens[i])) return static_cast<int>(i);
  return -1;
}

int find_end_plainly(const Strings& stops, const Strings& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    text += tokens[i];
    for (const std::string& stop : stops)
      if (text.find(stop) != std::string::npos) return static_cast<int>(i);
  }
  return -1;
}

TEST(StopMatcher, CasesFile) {
  std::ifstream file(test_data_path("rollout/stop_matcher_test.jsonl"));
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const auto record = nlohmann::json::parse(line);
    const auto stops = record["stops"].get<Strings>(), tokens = record["tokens"].get<Strings>();
    EXPECT_EQ(find_end(stops, tokens), record["ends_at"].get<int>()) << line;
    EXPECT_EQ(find_end_plainly(stops, tokens), record["ends_at"].get<int>()) << line;
  }
  EXPECT_GE(num_cases, 12);
}

std::string random_text(PhiloxStream& random, uint64_t longest, uint64_t num_letters) {
  std::string text(random.next_below(longest + 1), ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random.next_below(num_letters));
  return text;
}

TEST(StopMatcher, AgreesWithSearchingTheWholeText) {
  int num_found = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    PhiloxStream random(seed, 1);
    Strings stops, tokens;
    for (uint64_t i = random.next_below(3) + 1; i-- > 0;)
      stops.push_back("a" + random_text(random, 6, 2));
    for (int i = 0; i < 12; ++i) tokens.push_back(random_text(random, 3, 2));
    const int expected = find_end_plainly(stops, tokens);
    num_found += expected >= 0;
    ASSERT_EQ(find_end(stops, tokens), expected) << "seed " << seed;
  }
  EXPECT_GT(num_found, 500);
  EXPECT_LT(num_found, 2990);
}

}  // namespace
}  // namespace slimexx::rollout
