#include "observe/step_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace slimexx::observe {
namespace {

MetricRow typical_row() {
  MetricRow row;
  row.set("rollout/raw_reward", 0.4125);
  row.set("passrate/pass@1", 0.412);
  row.set("rollout/response_len/mean", 2214.3);
  row.set("train/ref_kl", 1.3e-4);
  row.set("train/pg_clipfrac", 0.0021);
  row.set("train/entropy", 0.318);
  row.set("train/grad_norm", 0.412);
  row.set("train/lr", 1e-6);
  row.set("perf/rollout_time", 41.2);
  row.set("perf/actor_train_time", 18.7);
  row.set("perf/tokens_per_gpu_per_sec", 5812);
  row.set("sys/mem_peak_gib", 12.25);
  return row;
}

TEST(StepLine, has_fixed_columns) {
  StepLine line(0, false);
  const std::string header = StepLine::header(typical_row()),
                    text = line.format(128, typical_row(), 11520);
  EXPECT_EQ(header.size(), text.size()) << header << "\n" << text;
  for (const char* part : {"128", "0.4125", "0.4120", "2,214", "1.3e-04", "0.21", "0.3180", "0.412",
                           "1.0e-06", "41.2", "18.7", "5,812", "12.25", "3h12m"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << header << "\n" << text;
  EXPECT_EQ(line.format(129, {}, -1).size(), header.size());
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(StepLine, shows_the_loss_of_supervised_training) {
  MetricRow row;
  row.set("train/loss", 1.2345);
  row.set("train/entropy", 0.5);
  row.set("perf/rollout_time", 0.01);
  row.set("rollout/response_len/mean", 4);
  StepLine line(0, false);
  const std::string header = StepLine::header(row), text = line.format(3, row, -1);
  EXPECT_EQ(header.size(), text.size()) << header << "\n" << text;
  EXPECT_NE(text.find("1.2345"), std::string::npos) << text;
  EXPECT_NE(header.find("loss"), std::string::npos) << header;
  for (const char* absent : {"reward", "pass@1", "ref_kl", "clip%", "gen s"})
    EXPECT_EQ(header.find(absent), std::string::npos) << header;
  EXPECT_EQ(StepLine::header(typical_row()).find("loss"), std::string::npos);
}

TEST(StepLine, colours_anomalies_only) {
  StepLine line(5, true);
  const auto red = [&](const MetricRow& row) {
    return line.format(6, row, -1).find("\x1b[31m") != std::string::npos;
  };
  for (int i = 0; i < 20; ++i) {
    MetricRow row = typical_row();
    row.set("train/grad_norm", 0.4 + 0.01 * (i % 3));
    EXPECT_FALSE(red(row)) << i;
  }
  MetricRow row = typical_row();
  row.set("train/grad_norm", 7);
  EXPECT_TRUE(red(row));
  row = typical_row();
  row.set("train/pg_clipfrac", 0.31);
  EXPECT_TRUE(red(row));
  row = typical_row();
  row.set("train/entropy", std::nan(""));
  EXPECT_TRUE(red(row));
  row = typical_row();
  row.set("rollout/zero_std/frac", 1);
  EXPECT_TRUE(red(row));
  StepLine first(0, true);
  EXPECT_NE(first.format(0, typical_row(), -1).find("\x1b[31m"), std::string::npos)
      << "a KL before the first step is an anomaly";
}

}  // namespace
}  // namespace slimexx::observe
