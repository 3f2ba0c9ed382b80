// The routers of a step: load sums that backward accumulates on the device, their sums over all
// ranks, and the correction biases that they move.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/decoder.h"
#include "slimexx/train/options.h"
#include "slimexx/train/router_load.h"

namespace slimexx::train {

class StepRouters {
 public:
  StepRouters(const model::ModelSpec& spec, const TrainOptions& options, tensor::Device device);
  // Zeroes the sums of a step that has `num_sequences` samples on all ranks.
  void start_step(const ops::Context& ctx, int64_t num_sequences);
  const model::RouterBalances& balances() const { return balances_; }
  // Appends this rank's sums to `values`, each as two integers that doubles add without rounding,
  // in any order. Waits for the device.
  void append_sums(const ops::Context& ctx, std::vector<double>& values) const;
  // Reads the values of append_sums after they were summed over ranks.
  std::vector<RouterLoad> read_sums(std::span<const double> values);
  // Moves the correction biases in `weights` of a stage by the sums of read_sums, equally on all
  // ranks.
  void move_biases(const ops::Context& ctx, const model::StageRange& stage,
                   const model::ModelParameters& weights) const;

 private:
  struct Router {
    int64_t layer = 0, experts = 0;
    bool has_bias = false;
  };
  tensor::Tensor all_sums() const;
  std::vector<Router> routers_;
  int64_t num_sums_ = 0;
  float bias_rate_ = 0;
  tensor::Buffer sums_;  // of all routers, consecutive
  model::RouterBalances balances_;
  std::vector<int64_t> step_sums_;  // over all ranks
};

}  // namespace slimexx::train
