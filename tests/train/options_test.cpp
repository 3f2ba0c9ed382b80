#include "slimexx/train/options.h"

#include <gtest/gtest.h>

namespace slimexx::train {
namespace {

TEST(LearningRate, WarmsUpThenFollowsItsShape) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.min_lr = 0.1;
  o.lr_warmup_iters = 4;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 14), 0.0);  // Megatron's k / W
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 14), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 14), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 14), 1.0);  // constant
  o.lr_warmup_init = 0.2;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 14), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 14), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 14), 1.0);
  o.lr_warmup_init = 0;
  o.lr_decay_style = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 14), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 14), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(o, 14, 14), 0.1);
  o.lr_decay_style = "cosine";
  EXPECT_NEAR(learning_rate(o, 9, 14), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(o, 6, 14), 0.1 + 0.9 * 0.9045084971874737, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(o, 99, 14), 0.1);
}

TEST(LearningRate, WarmsUpOverAFractionOfTheSteps) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.lr_warmup_fraction = 0.25;  // 2.5 of 10 steps
  EXPECT_DOUBLE_EQ(warmup_steps(o, 10), 2.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1, 10), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(o, 2, 10), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 10), 1.0);
  o.lr_decay_style = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 10), 0.8);  // 1 - 1.5 / 7.5
}

// lr * sqrt(warm-up / step), at least min_lr, which also holds after the last step.
TEST(LearningRate, InverseSquareRoot) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.min_lr = 0.3;
  o.lr_decay_style = "inverse-square-root";
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 81, 100), 0.3);
  o.lr_warmup_iters = 4;
  EXPECT_DOUBLE_EQ(learning_rate(o, 2, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 16, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 101, 100), 0.3);
}

// Warm-up to step 2, constant to step 16, then down over 4 steps.
TEST(LearningRate, WarmupStableDecay) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.min_lr = 0.2;
  o.lr_warmup_iters = 2;
  o.lr_decay_style = "WSD";
  o.lr_wsd_decay_iters = 4;
  const auto at = [&](const char* style, int64_t step) {
    o.lr_wsd_decay_style = style;
    return learning_rate(o, step, 20);
  };
  for (const char* style : {"exponential", "linear", "cosine", "minus_sqrt"}) {
    SCOPED_TRACE(style);
    EXPECT_DOUBLE_EQ(at(style, 1), 0.5);
    EXPECT_DOUBLE_EQ(at(style, 10), 1.0);
    EXPECT_DOUBLE_EQ(at(style, 16), 1.0);
    EXPECT_NEAR(at(style, 20), 0.2, 1e-15);
    EXPECT_DOUBLE_EQ(at(style, 21), 0.2);
  }
  EXPECT_DOUBLE_EQ(at("linear", 17), 0.8);                                   // share 3/4
  EXPECT_DOUBLE_EQ(at("minus_sqrt", 17), 0.6);                               // 1 - sqrt(1/4)
  EXPECT_NEAR(at("cosine", 18), 0.6, 1e-15);                                 // half
  EXPECT_DOUBLE_EQ(at("exponential", 18), 0.2 + 0.8 * 0.41421356237309515);  // 2 / sqrt(2) - 1
}

}  // namespace
}  // namespace slimexx::train
