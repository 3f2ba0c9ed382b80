// Allowed differences between training on a grid and on one rank.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "train/grids/grid_run.h"

namespace slimexx::train {

// ||a-b|| / ||b||; ||a|| if b is zero.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
}

// The relative difference of all tensors together, as one vector.
inline double relative_difference(const TensorValues& a, const TensorValues& b) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : b) {
    double own = 0;
    for (const float v : values) own += static_cast<double>(v) * v;
    const double apart = relative_difference(a.at(name), values);
    difference += apart * apart * (own > 0 ? own : 1);
    norm += own;
  }
  return std::sqrt(difference / norm);
}

inline void expect_close(const TensorValues& actual, const TensorValues& expected, double most,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << what << " " << name;
    ASSERT_EQ(actual.at(name).size(), values.size()) << what << " " << name;
    EXPECT_LE(relative_difference(actual.at(name), values), most) << what << " " << name;
  }
}

// Removes elements whose gradient is pure rounding, which Adam would turn into full steps. These
// are key biases in heads without RoPE: no score depends on them.
inline TensorValues moved_by_gradients(TensorValues weights, const TensorValues& gradients) {
  for (const auto& [name, gradient] : gradients) {
    float largest = 0;
    for (const float g : gradient) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < gradient.size(); ++i)
      if (gradient[i] != 0 && std::abs(gradient[i]) <= 1e-5f * largest) weights.at(name)[i] = 0;
  }
  return weights;
}

// Allowed relative differences due to another order of sums.
struct GridBounds {
  double loss = 1e-6, norm = 1e-6;  // for the first step
  // For later steps; 0: not compared, because Adam turns gradients that are pure rounding into full
  // steps.
  double later = 1e-4;
  double gradients = 1e-6;  // ||a-b||/||b|| of all tensors together
  double gradient = 1e-5;   // per tensor
  double weight = 1e-4;     // per tensor, after the last step; 0: not compared
};

// Expects equal bits for log-probs and entropies, and equality up to the order of sums for losses,
// norms, gradients and weights.
inline void expect_same_training(const GridResult& actual, const GridResult& expected,
                                 const GridBounds& bounds = {}) {
  ASSERT_EQ(actual.scores.size(), expected.scores.size());
  for (size_t i = 0; i < expected.scores.size(); ++i) {
    EXPECT_EQ(actual.scores[i].log_probs, expected.scores[i].log_probs) << "sample " << i;
    EXPECT_EQ(actual.scores[i].entropies, expected.scores[i].entropies) << "sample " << i;
  }
  ASSERT_EQ(actual.steps.size(), expected.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResult &a = actual.steps[i], &e = expected.steps[i];
    EXPECT_EQ(a.skipped, e.skipped) << "step " << i;
    if (i > 0 && bounds.later == 0) continue;
    const double most = i == 0 ? bounds.loss : bounds.later;
    EXPECT_NEAR(a.gradient_norm, e.gradient_norm,
                (i == 0 ? bounds.norm : bounds.later) * e.gradient_norm)
        << "step " << i;
    for (size_t m = 0; m < ops::kNumLossMetrics; ++m)
      EXPECT_NEAR(a.metrics[m], e.metrics[m], most * std::abs(e.metrics[m]) + 1e-9)
          << "step " << i << " metric " << m;
    ASSERT_EQ(a.mtp_losses.size(), e.mtp_losses.size());
    for (size_t k = 0; k < e.mtp_losses.size(); ++k)
      EXPECT_NEAR(a.mtp_losses[k], e.mtp_losses[k], most * e.mtp_losses[k])
          << "step " << i << " MTP layer " << k;
    ASSERT_EQ(a.routers.size(), e.routers.size());
    for (size_t r = 0; r < e.routers.size(); ++r) {
      EXPECT_EQ(a.routers[r].layer, e.routers[r].layer);
      EXPECT_NEAR(a.routers[r].aux_loss, e.routers[r].aux_loss, 1e-4) << "step " << i;
      if (i > 0) continue;
      EXPECT_EQ(a.routers[r].tokens, e.routers[r].tokens) << "layer " << e.routers[r].layer;
      EXPECT_EQ(a.routers[r].entropy, e.routers[r].entropy) << "layer " << e.routers[r].layer;
      EXPECT_EQ(a.routers[r].aux_loss, e.routers[r].aux_loss) << "layer " << e.routers[r].layer;
      EXPECT_EQ(a.routers[r].z_loss, e.routers[r].z_loss) << "layer " << e.routers[r].layer;
    }
  }
  expect_close(actual.gradients, expected.gradients, bounds.gradient, "gradient");
  if (actual.gradients.size() == expected.gradients.size()) {
    EXPECT_LE(relative_difference(actual.gradients, expected.gradients), bounds.gradients);
  }
  if (bounds.weight == 0) return;
  expect_close(moved_by_gradients(actual.weights, expected.gradients),
               moved_by_gradients(expected.weights, expected.gradients), bounds.weight, "weight");
}

}  // namespace slimexx::train
