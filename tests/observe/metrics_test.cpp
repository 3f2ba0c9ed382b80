#include "slimexx/observe/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace slimexx::observe {
namespace {

TEST(Catalogue, has_no_name_twice) {
  std::set<std::string_view> seen;
  const std::set<std::string_view> groups = {"rollout", "passrate",  "train",      "perf",
                                             "eval",    "data",      "multi_turn", "sys",
                                             "reward",  "train_step"};
  for (const MetricInfo& info : metric_catalogue()) {
    EXPECT_TRUE(seen.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_TRUE(groups.contains(info.name.substr(0, info.name.find('/')))) << info.name;
  }
  EXPECT_GT(seen.size(), 130u);
}

TEST(Catalogue, finds_names_and_families) {
  for (const char* name :
       {"rollout/raw_reward", "rollout/response_len/mean", "rollout/zero_std/count_0.0",
        "train/pg_clipfrac/low", "perf/actor_train_time", "perf/my_span_time", "eval/aime",
        "eval/aime/pass@1", "eval/aime/response_len/max", "reward/acc",
        "train_step/pg_clipfrac/low", "passrate/pass@8", "eval/aime/zero_std/count_1",
        "train/mtp_1_loss", "sys/mem_peak_gib"})
    EXPECT_NE(find_metric(name), nullptr) << name;
  for (const char* name : {"", "rollout", "rollout/raw_rewards", "train/lr-pg_", "eval/aime/nope",
                           "eval/", "perf/_tim", "perf/a/b_time", "eval//pass@1"})
    EXPECT_EQ(find_metric(name), nullptr) << name;
  EXPECT_EQ(find_metric("train/mtp_loss")->name, "train/mtp_loss");
}

TEST(MetricRow, keeps_order_and_replaces) {
  MetricRow row, other;
  row.set("train/loss", 1);
  row.set("train/lr", 2);
  row.set("train/loss", 3);
  other.set("train/lr", 4);
  other.set("train/grad_norm", 5);
  row.merge(other);
  const std::vector<std::pair<std::string, double>> want = {
      {"train/loss", 3}, {"train/lr", 4}, {"train/grad_norm", 5}};
  EXPECT_EQ(row.values(), want);
  EXPECT_EQ(row.find("train/step"), nullptr);
}

TEST(MetricRowDeathTest, refuses_a_name_without_a_row) {
  MetricRow row;
  EXPECT_DEATH(row.set("train/los", 1), "the catalogue has no metric train/los");
}

TEST(Statistics, are_numpys) {
  MetricRow row;
  set_statistics(row, "rollout/response_len", {});
  EXPECT_TRUE(row.values().empty());
  set_statistics(row, "rollout/response_len", {4, 1, 3, 8});
  EXPECT_EQ(*row.find("rollout/response_len/mean"), 4);
  EXPECT_EQ(*row.find("rollout/response_len/median"), 3.5);
  EXPECT_EQ(*row.find("rollout/response_len/max"), 8);
  EXPECT_EQ(*row.find("rollout/response_len/min"), 1);
  set_statistics(row, "rollout/response_len", {4, 1, 3});
  EXPECT_EQ(*row.find("rollout/response_len/median"), 3);
  set_statistics(row, "rollout/response_len", {4, std::nan(""), 3});
  EXPECT_TRUE(std::isnan(*row.find("rollout/response_len/min")));
}

TEST(Reference, lists_every_metric_once) {
  const std::string text = write_metrics_reference();
  for (const MetricInfo& info : metric_catalogue()) {
    const std::string cell = "| `" + std::string(info.name) + "` |";
    const size_t first = text.find(cell);
    ASSERT_NE(first, std::string::npos) << info.name;
    EXPECT_EQ(text.find(cell, first + 1), std::string::npos) << info.name;
  }
  std::set<std::string> headings;
  for (size_t at = text.find("\n## "); at != std::string::npos; at = text.find("\n## ", at + 1))
    EXPECT_TRUE(headings.insert(text.substr(at, text.find('\n', at + 1) - at)).second);
}

}  // namespace
}  // namespace slimexx::observe
