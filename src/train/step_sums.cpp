#include "train/step_sums.h"

#include <algorithm>

#include "slimexx/ops/elementwise.h"

namespace slimexx::train {
namespace {

using tensor::DType;

constexpr int64_t kMetricsBytes = ops::kNumLossMetrics * 8;  // F64

// The first tp rank of the last pipeline stage.
bool reports_own_rows(const dist::Groups& groups) {
  return groups.tp.rank() == 0 && groups.pp.rank() == groups.pp.size() - 1;
}

}  // namespace

StepSums::StepSums(const TrainedStages& stages)
    : stages_(stages),
      num_trained_mtp_(stages.spec.num_trained_mtp()),
      metrics_(stages.device, (1 + num_trained_mtp_) * kMetricsBytes, "loss metrics"),
      routers_(stages.spec, stages.options, stages.device) {}

tensor::Tensor StepSums::all_metrics() const {
  return metrics_.view(DType::kF64, {(1 + num_trained_mtp_) * ops::kNumLossMetrics});
}

tensor::Tensor StepSums::loss_metrics() const {
  return metrics_.view(DType::kF64, {ops::kNumLossMetrics});
}

void StepSums::start_step(const ops::Context& ctx, int64_t num_sequences) {
  ops::fill_zero(ctx, all_metrics());
  routers_.start_step(ctx, num_sequences);
}

MtpWork StepSums::mtp_work(std::span<const Sample> samples) const {
  MtpWork work = make_mtp_work(samples, num_trained_mtp_, stages_.options.mtp_loss_scaling_factor);
  for (int64_t k = 1; k <= num_trained_mtp_; ++k)
    work.metrics.push_back(metrics_.view(DType::kF64, {ops::kNumLossMetrics}, k * kMetricsBytes));
  return work;
}

std::vector<double> StepSums::download(const ops::Context& ctx) const {
  const tensor::Tensor all = all_metrics();
  std::vector<double> sums(static_cast<size_t>(all.num_elements()));
  tensor::download(ctx.stream, sums.data(), all);
  // All cp ranks have the whole policy loss, but MTP losses of their own rows only.
  if (!is_reporter(stages_.groups)) std::fill_n(sums.begin(), ops::kNumLossMetrics, 0);
  if (!reports_own_rows(stages_.groups)) std::ranges::fill(sums, 0);
  routers_.append_sums(ctx, sums);
  return sums;
}

void StepSums::read(std::span<const double> sums, StepResult& result) {
  constexpr auto kLoss = static_cast<size_t>(ops::LossMetric::kLoss);
  std::copy_n(sums.begin(), ops::kNumLossMetrics, result.metrics);
  size_t at = ops::kNumLossMetrics;
  for (int64_t k = 0; k < num_trained_mtp_; ++k, at += ops::kNumLossMetrics)
    result.mtp_losses.push_back(sums[at + kLoss]);
  result.routers = routers_.read_sums(sums.subspan(at));
}

void StepSums::move_biases(const ops::Context& ctx) const {
  for (const StageChunk& chunk : stages_.chunks)
    routers_.move_biases(ctx, chunk.decoder.stage(), chunk.weights);
}

}  // namespace slimexx::train
