// Sums of a step that ranks add up on the host: the metrics of the loss and of MTP layers, and the
// routers' loads.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/train/trainer.h"
#include "train/step_routers.h"
#include "train/trained_stages.h"

namespace slimexx::train {

class StepSums {
 public:
  explicit StepSums(const TrainedStages& stages);
  // Zeroes all sums of a step that has `num_sequences` samples on all ranks.
  void start_step(const ops::Context& ctx, int64_t num_sequences);
  tensor::Tensor loss_metrics() const;  // [kNumLossMetrics] F64
  // The work of the trained MTP layers. If no MTP layer is trained, all vectors of MtpWork are
  // empty.
  MtpWork mtp_work(std::span<const Sample> samples) const;
  const model::RouterBalances& balances() const { return routers_.balances(); }
  // The sums that this rank reports: kNumLossMetrics metrics for the loss and for each MTP layer,
  // then the routers' sums. Waits for the device.
  std::vector<double> download(const ops::Context& ctx) const;
  // Reads the values of download() after they were summed over ranks.
  void read(std::span<const double> sums, StepResult& result);
  // Moves the correction biases of all stages by the loads of read().
  void move_biases(const ops::Context& ctx) const;

 private:
  tensor::Tensor all_metrics() const;

  const TrainedStages& stages_;
  const int64_t num_trained_mtp_;
  tensor::Buffer metrics_;  // [1 + num_trained_mtp_, kNumLossMetrics] f64
  StepRouters routers_;
};

}  // namespace slimexx::train
