#include "slimexx/train/options.h"

#include <gtest/gtest.h>

namespace slimexx::train {
namespace {

TEST(LearningRate, WarmsUpThenFollowsItsShape) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.min_lr = 0.1;
  o.lr_warmup_iters = 4;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 14), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 14), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 14), 1.0);  // constant
  o.lr_decay_style = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 14), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 14), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(o, 14, 14), 0.1);
  o.lr_decay_style = "cosine";
  EXPECT_NEAR(learning_rate(o, 9, 14), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(o, 6, 14), 0.1 + 0.9 * 0.9045084971874737, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(o, 99, 14), 0.1);
}

}  // namespace
}  // namespace slimexx::train
