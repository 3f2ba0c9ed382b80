#include "slimexx/config/config.h"

#include <gtest/gtest.h>

#include "slimexx/base/error.h"

namespace slimexx::config {
namespace {

struct Options {
  int64_t num_rollout = 100;
  double lr = 1e-6;
};

void bind(Binder& b, Options& o) {
  b.begin_section("rollout", "Rollouts.");
  b.field("num_rollout", o.num_rollout, {.unit = "rollouts", .doc = "How many.", .min = 1});
  b.end_section();
  b.begin_section("optimizer", "Optimizer.");
  b.field("lr", o.lr, {.doc = "Peak learning rate.", .min = 0});
  b.end_section();
}

TEST(Config, reads_values_and_overrides) {
  Config config = Config::parse("rollout:\n  num_rollout: 3_000\n", "run.yaml",
                                {{"optimizer.lr", "2e-6"}});
  Options o;
  bind(config.binder(), o);
  config.finish();
  EXPECT_EQ(o.num_rollout, 3000);
  EXPECT_EQ(o.lr, 2e-6);
  EXPECT_EQ(config.origin("rollout.num_rollout"), "run.yaml:2:16");
  EXPECT_EQ(config.origin("optimizer.lr"), "--set");
}

}  // namespace
}  // namespace slimexx::config
