#include <gtest/gtest.h>

#include "slimexx/config/config.h"

namespace slimexx::config {
namespace {

std::string text_of(const std::string& before, const std::string& after) {
  std::string text;
  for (const auto& change : list_changes(before, after))
    text += change.key + ": " + change.before + " -> " + change.after + "\n";
  return text;
}

TEST(ListChanges, NamesKeysWithBothValues) {
  EXPECT_EQ(text_of("a: {b: 1, c: x}\nd: [1, 2]\n", "a: {b: 1, c: x}\nd: [1, 2]\n"), "");
  EXPECT_EQ(text_of("a: {b: 1, c: x}\n", "a: {b: 2, c: y}\n"), "a.b: 1 -> 2\na.c: x -> y\n");
  EXPECT_EQ(text_of("d: [1, 2]\n", "d: [1, 3]\n"), "d: [1,2] -> [1,3]\n");
  EXPECT_EQ(text_of("a: null\n", "a: 3\n"), "a: null -> 3\n");
  EXPECT_EQ(text_of("a: \"\"\n", "a: x\n"), "a: \"\" -> x\n");
}

TEST(ListChanges, KnowsKeysThatOnlyOneHas) {
  EXPECT_EQ(text_of("a: 1\n", "a: 1\nb: {c: 2}\n"), "b.c:  -> 2\n");
  EXPECT_EQ(text_of("a: 1\nb: {c: 2}\n", "a: 1\n"), "b.c: 2 -> \n");
  EXPECT_EQ(text_of("", "a: 1\n"), "a:  -> 1\n");
}

// A resolved configuration keeps ${env:...} references unexpanded. Digests in its "# env" comments
// show whether the value of a variable has changed.
TEST(ListChanges, KnowsWhenAVariableHasChanged) {
  const std::string yaml = "a: \"${env:X}/m\"\nb: \"${env:Y:-1}\"\nc: \"$${env:X}\"\n";
  EXPECT_EQ(text_of("# env X 1111\n" + yaml, "# env X 1111\n" + yaml), "");
  EXPECT_EQ(text_of("# env X 1111\n# env Y 3333\n" + yaml, "# env X 2222\n# env Y 3333\n" + yaml),
            "a: ${env:X}/m -> ${env:X}/m with another value of X\n");
  EXPECT_EQ(text_of("# env Y unset\n" + yaml, "# env Y 2222\n" + yaml),
            "b: ${env:Y:-1} -> ${env:Y:-1} with another value of Y\n");
}

}  // namespace
}  // namespace slimexx::config
