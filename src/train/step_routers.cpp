#include "train/step_routers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "slimexx/base/check.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kHalf = int64_t{1} << 32;  // a sum is high * kHalf + low

}  // namespace

RouterLoad summarize_router(int64_t layer, const std::vector<int64_t>& sums) {
  const int64_t experts = (std::ssize(sums) - 2) / 2;
  RouterLoad load{.layer = layer, .tokens = {sums.begin(), sums.begin() + experts}};
  const auto [least, most] = std::ranges::minmax(load.tokens);
  const int64_t total = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
  const double mean =
      static_cast<double>(std::max<int64_t>(total, 1)) / static_cast<double>(experts);
  load.max_load = static_cast<double>(most) / mean;
  load.min_load = static_cast<double>(least) / mean;
  const std::span<const int64_t> probabilities(sums.data() + experts, static_cast<size_t>(experts));
  double whole = 0;
  for (const int64_t p : probabilities) whole += static_cast<double>(p);
  for (const int64_t p : probabilities)
    if (p > 0)
      load.entropy -= static_cast<double>(p) / whole * std::log(static_cast<double>(p) / whole);
  load.aux_loss = static_cast<double>(sums[sums.size() - 2]) / kernels::kAuxLossUnits;
  load.z_loss = static_cast<double>(sums.back()) / kernels::kZLossUnits;
  return load;
}

StepRouters::StepRouters(const model::ModelSpec& spec, const TrainOptions& options,
                         tensor::Device device)
    : bias_rate_(static_cast<float>(options.moe_router_bias_update_rate)) {
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    const ops::RouterRule* router = model::router(spec.layer(layer));
    if (router == nullptr) continue;
    routers_.push_back({layer, router->num_experts, model::has_router_bias(spec.layer(layer))});
    num_sums_ += ops::count_router_sums(router->num_experts);
  }
  if (routers_.empty()) return;
  constexpr int64_t kBytes = 8;
  sums_ = tensor::Buffer(device, num_sums_ * kBytes, "expert loads");
  balances_.sums.resize(spec.layers.size());
  int64_t at = 0;
  for (const Router& router : routers_) {
    const int64_t n = ops::count_router_sums(router.experts);
    balances_.sums[static_cast<size_t>(router.layer)] = sums_.view(DType::kI64, {n}, at * kBytes);
    at += n;
  }
  balances_.rule = {.aux_loss_coeff = static_cast<float>(options.moe_aux_loss_coeff),
                    .z_loss_coeff = static_cast<float>(options.moe_z_loss_coeff)};
}

Tensor StepRouters::all_sums() const { return sums_.view(DType::kI64, {num_sums_}); }

void StepRouters::start_step(const ops::Context& ctx, int64_t num_sequences) {
  balances_.rule.sequences = std::max<int64_t>(num_sequences, 1);
  if (!routers_.empty()) ops::fill_zero(ctx, all_sums());
}

void StepRouters::append_sums(const ops::Context& ctx, std::vector<double>& values) const {
  if (routers_.empty()) return;
  std::vector<int64_t> own(static_cast<size_t>(num_sums_));
  tensor::download(ctx.stream, own.data(), all_sums());
  for (const int64_t sum : own) {
    values.push_back(static_cast<double>(sum >> 32));
    values.push_back(static_cast<double>(sum & (kHalf - 1)));
  }
}

std::vector<RouterLoad> StepRouters::read_sums(std::span<const double> values) {
  SLX_CHECK_EQ(std::ssize(values), 2 * num_sums_);
  step_sums_.clear();
  for (size_t i = 0; i < values.size(); i += 2)
    step_sums_.push_back(static_cast<int64_t>(values[i]) * kHalf +
                         static_cast<int64_t>(values[i + 1]));
  std::vector<RouterLoad> loads;
  auto first = step_sums_.begin();
  for (const Router& router : routers_) {
    const auto end = first + ops::count_router_sums(router.experts);
    loads.push_back(summarize_router(router.layer, {first, end}));
    first = end;
  }
  return loads;
}

void StepRouters::move_biases(const ops::Context& ctx, const model::StageRange& stage,
                              const model::ModelParameters& weights) const {
  if (bias_rate_ == 0 || routers_.empty()) return;
  tensor::upload(ctx.stream, all_sums(), step_sums_.data());
  for (const Router& router : routers_) {
    if (!router.has_bias || router.layer < stage.first_layer || router.layer >= stage.end_layer)
      continue;
    const auto layer = static_cast<size_t>(router.layer);
    const auto in_stage = static_cast<size_t>(router.layer - stage.first_layer);
    const Tensor bias =
        std::visit([](const auto& mlp) { return router_bias(mlp); }, weights.layers[in_stage].mlp);
    ops::move_router_bias(ctx, bias, balances_.sums[layer], bias_rate_);
  }
}

}  // namespace slimexx::train
