#include "rollout/drafting/lookup_drafter.h"

#include <gtest/gtest.h>

#include <memory>

namespace slimexx::rollout {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<Sequence> make_sequence(uint64_t group, Tokens tokens) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request.name.group = group;
  sequence->tokens = std::move(tokens);
  return sequence;
}

TEST(LookupDrafter, ContinuesAsTheTextDidLast) {
  LookupDrafter drafter;
  const auto s = make_sequence(1, {1, 2, 30, 1, 2, 40, 9, 1, 2});
  drafter.start(s.get());
  EXPECT_EQ(drafter.guess(*s, 2), (Tokens{40, 9}));
  EXPECT_EQ(drafter.guess(*s, 9), (Tokens{40, 9, 1, 2}));
  EXPECT_EQ(drafter.guess(*s, 0), Tokens{});
  s->tokens.push_back(77);
  EXPECT_EQ(drafter.guess(*s, 2), Tokens{}) << "2, 77 was never there";
  s->tokens.insert(s->tokens.end(), {1, 2});
  EXPECT_EQ(drafter.guess(*s, 2), (Tokens{77, 1}));
}

TEST(LookupDrafter, LongerRunsComeFirst) {
  LookupDrafter drafter;
  const auto s = make_sequence(1, {5, 6, 7, 8, 9, 50, 8, 9, 60, 5, 6, 7, 8, 9});
  drafter.start(s.get());
  EXPECT_EQ(drafter.guess(*s, 1), Tokens{50});
  const auto shorter = make_sequence(2, {6, 7, 8, 9, 50, 8, 9, 60, 6, 7, 8, 9});
  drafter.start(shorter.get());
  EXPECT_EQ(drafter.guess(*shorter, 1), Tokens{60});
}

TEST(LookupDrafter, LooksInTheWholeGroupAndInNoOther) {
  LookupDrafter drafter;
  const auto a = make_sequence(1, {1, 2, 3, 4, 5}), b = make_sequence(1, {8, 1, 2}),
             other = make_sequence(2, {1, 2});
  for (const auto* s : {&a, &b, &other}) drafter.start(s->get());
  EXPECT_EQ(drafter.guess(*b, 2), (Tokens{3, 4}));
  EXPECT_EQ(drafter.guess(*other, 2), Tokens{});
  // Finished responses are kept for the rest of the group, until its last one finishes.
  drafter.finish(a.get());
  a->tokens.clear();
  EXPECT_EQ(drafter.guess(*b, 2), (Tokens{3, 4}));
  drafter.finish(b.get());
  const auto c = make_sequence(1, {1, 2});
  drafter.start(c.get());
  EXPECT_EQ(drafter.guess(*c, 2), Tokens{});
}

TEST(LookupDrafter, TokensThatAreNotKnownAreNoGuess) {
  LookupDrafter drafter;
  const auto a = make_sequence(1, {1, 2, ~4}), b = make_sequence(1, {1, 2});
  drafter.start(a.get());
  drafter.start(b.get());
  EXPECT_EQ(drafter.guess(*b, 2), Tokens{});
  a->tokens.back() = 6;
  EXPECT_EQ(drafter.guess(*b, 2), Tokens{6});
}

}  // namespace
}  // namespace slimexx::rollout
