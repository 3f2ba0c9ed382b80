// The spec of a mixture of experts: shards, parameters, limits and FLOPs.
#include <fmt/format.h>

#include <numeric>

#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/base/check.h"
#include "slimexx/base/divisors.h"
#include "slimexx/base/error.h"
#include "slimexx/model/blocks/moe_mlp.h"
#include "slimexx/ops/device_limits.h"

namespace slimexx::model {
namespace {

// Throws Error(kUsage) unless `size` is divisible by `ranks`. The hint names the nearest divisors
// of `common`.
void check_shares(const std::string& what, int64_t size, int64_t ranks, int64_t common,
                  const char* key) {
  if (size % ranks == 0) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} are not divisible by {} ranks: {} % {} = {}", what, ranks, size,
                          ranks, size % ranks),
              suggest_divisors(common, ranks), key);
}

// Throws Error(kUsage) if the grid does not divide the block's sizes.
void check_expert_grid(const MoeMlpSpec& spec, const dist::GridSizes& sizes) {
  const int64_t experts = spec.router.num_experts;
  if (spec.expert_copies == 0)
    check_shares(fmt::format("{} experts", experts), experts, sizes.ep, experts,
                 "parallel.expert_model_parallel_size");
  const int64_t f = spec.intermediate_size, h = spec.hidden_size, both = std::gcd(f, h);
  const char* key = "parallel.expert_tensor_parallel_size";
  check_shares(fmt::format("the {} columns of an expert", f), f, sizes.etp, both, key);
  check_shares(fmt::format("the {} columns of an expert's output", h), h, sizes.etp, both, key);
}

}  // namespace

MoeMlpSpec narrow(const MoeMlpSpec& spec, const dist::GridSizes& sizes) {
  check_expert_grid(spec, sizes);
  MoeMlpSpec own = spec;
  own.expert_ranks = sizes.ep;
  own.etp_ranks = sizes.etp;
  if (sizes.ep == 1) own.expert_copies = 0;
  SLX_CHECK(own.placement().is_legal(), "{} copies of {} experts cannot be placed on {} ranks",
            own.placement().num_copies, own.router.num_experts, sizes.ep);
  if (!own.shared) return own;
  check_tp_divides("moe_intermediate_size x n_shared_experts", own.shared->intermediate_size,
                   sizes.tp);
  own.shared = narrow(*own.shared, sizes);
  own.has_whole_shared = sizes.tp == 1;
  own.can_join_shared = own.has_whole_shared && !own.shared->bias &&
                        own.shared->intermediate_size == own.intermediate_size;
  return own;
}

MoeMlpParameters<ParameterId> declare(ParameterList& list, const MoeMlpSpec& s,
                                      const std::string& own, const std::string& hf) {
  const int64_t experts = s.router.num_experts, f = s.intermediate_size, h = s.hidden_size;
  const std::string mlp = hf + "mlp.";
  ParameterInfo gate_up{.name = own + "mlp.experts.gate_up.weight", .shape = {experts, 2 * f, h}};
  ParameterInfo down{.name = own + "mlp.experts.down.weight", .shape = {experts, h, f}};
  for (int64_t e = 0; e < experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", mlp, e);
    gate_up.parts.push_back(
        {.name = expert + "gate_proj.weight", .shape = {f, h}, .at = {e, 0, 0}});
    gate_up.parts.push_back({.name = expert + "up_proj.weight", .shape = {f, h}, .at = {e, f, 0}});
    down.parts.push_back({.name = expert + "down_proj.weight", .shape = {h, f}, .at = {e, 0, 0}});
  }
  const Shard by_expert{.axis = 0, .dim = GridDim::kExpert, .num_copies = s.expert_copies};
  gate_up.reduce_group = down.reduce_group = ReduceGroup::kExpert;
  gate_up.is_linear = down.is_linear = true;
  down.init = InitKind::kResidual;
  gate_up.shards = {by_expert, {.axis = 1, .sections = {{f}, {f}}}};
  down.shards = {by_expert, {.axis = 1}};

  MoeMlpParameters<ParameterId> p;
  p.router_weight =
      list.add_weight(own + "mlp.router.weight", {{mlp + "gate.weight", experts}}, h, {});
  p.correction_bias = kNoParameter;
  if (s.has_correction_bias) {
    p.correction_bias =
        list.add({.name = own + "mlp.router.correction_bias",
                  .shape = {experts},
                  .decayed = false,
                  .trainable = false,
                  .moved_by_rule = true,
                  .dtype = DType::kF32,
                  .init = InitKind::kZeros,
                  .parts = {{.name = mlp + "gate.e_score_correction_bias", .shape = {experts}}}});
  }
  p.gate_up.weight = list.add(std::move(gate_up));
  p.down.weight = list.add(std::move(down));
  if (s.shared)
    p.shared =
        declare_dense_mlp(list, *s.shared, own + "mlp.shared_experts.", mlp + "shared_experts.");
  return p;
}

void check_device_sizes(const MoeMlpSpec& spec, tensor::Device device) {
  if (device.is_cpu()) return;
  const auto refuse = [device](const std::string& fault, const char* key) {
    throw Error(ErrorCode::kInput, fmt::format("{} on {}", fault, tensor::to_string(device)),
                "use --device cpu", key);
  };
  const ops::RouterRule& router = spec.router;
  if (const ExpertPlacement placement = spec.placement(); placement.num_copies > ops::kMostExperts)
    refuse(fmt::format("{} experts{}: the kernels support up to {}", placement.num_copies,
                       placement.has_redundant() ? ", including redundant ones" : "",
                       ops::kMostExperts),
           "num_experts");
  if (router.top_k > ops::kMostRoutedTo)
    refuse(fmt::format("{} experts per token: the router supports up to {}", router.top_k,
                       ops::kMostRoutedTo),
           "num_experts_per_tok");
  if (router.num_groups > ops::kMostExpertGroups)
    refuse(fmt::format("{} groups of experts: the router supports up to {}", router.num_groups,
                       ops::kMostExpertGroups),
           "n_group");
  const std::string of_ranks =
      spec.etp_ranks > 1 ? fmt::format(" on {} ranks", spec.etp_ranks) : std::string();
  const char* etp_key = "parallel.expert_tensor_parallel_size";
  if (spec.intermediate_size % (8 * spec.etp_ranks) != 0)
    refuse(fmt::format("experts of {} elements{}: expert kernels need multiples of 8",
                       spec.intermediate_size, of_ranks),
           spec.etp_ranks > 1 ? etp_key : "moe_intermediate_size");
  if (spec.hidden_size % (8 * spec.etp_ranks) != 0)
    refuse(fmt::format("hidden size {}{}: expert kernels need multiples of 8", spec.hidden_size,
                       of_ranks),
           spec.etp_ranks > 1 ? etp_key : "hidden_size");
}

std::string describe(const MoeMlpSpec& s) {
  const ops::RouterRule& r = s.router;
  std::string text =
      fmt::format("{} of {} experts {}, {}", r.top_k, r.num_experts, s.intermediate_size,
                  r.score == ops::RouterScore::kSoftmax ? "softmax" : "sigmoid");
  if (s.has_correction_bias) text += " with correction bias";
  if (r.kept_groups < r.num_groups)
    text += fmt::format(", {} of {} groups", r.kept_groups, r.num_groups);
  if (r.normalized) text += ", weights normalised";
  if (r.scaling_factor != 1) text += fmt::format(" x {}", r.scaling_factor);
  if (s.shared) text += fmt::format(", shared expert {}", s.shared->intermediate_size);
  return text;
}

double forward_flops(const MoeMlpSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), h = static_cast<double>(s.hidden_size);
  const double experts =
      6 * n * static_cast<double>(s.router.top_k) * h * static_cast<double>(s.intermediate_size);
  const double router = 2 * n * h * static_cast<double>(s.router.num_experts);
  return experts + router + (s.shared ? forward_flops(*s.shared, num_tokens) : 0);
}

}  // namespace slimexx::model
