// What a mixture of experts is, before it computes: its shard, parameters, limits and operations.
#include <fmt/format.h>

#include <algorithm>

#include "model/parameter_list.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/model/blocks/moe_mlp.h"
#include "slimexx/ops/device_limits.h"

namespace slimexx::model {
namespace {

// Throws Error(kUsage) for what a grid cannot split.
void check_expert_grid(const MoeMlpSpec& spec, const dist::GridSizes& sizes) {
  const int64_t num_experts = spec.router.num_experts;
  if (sizes.etp > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("tensor parallelism of {} inside an expert is planned; experts are "
                            "split over expert_model_parallel_size ranks alone",
                            sizes.etp),
                "set it to 1", "parallel.expert_tensor_parallel_size");
  if (num_experts % sizes.ep == 0 || spec.expert_copies > 0) return;
  const auto divides = [&](int64_t ranks) { return num_experts % ranks == 0; };
  int64_t below = std::min<int64_t>(sizes.ep, num_experts), above = sizes.ep;
  while (!divides(below)) --below;
  while (above < num_experts && !divides(above)) ++above;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} experts do not divide by {} ranks: {} % {} = {}", num_experts,
                          sizes.ep, num_experts, sizes.ep, num_experts % sizes.ep),
              above <= num_experts ? fmt::format("set it to {} or {}", below, above)
                                   : fmt::format("set it to {}", below),
              "parallel.expert_model_parallel_size");
}

}  // namespace

MoeMlpSpec narrow(const MoeMlpSpec& spec, const dist::GridSizes& sizes) {
  check_expert_grid(spec, sizes);
  MoeMlpSpec own = spec;
  own.expert_ranks = sizes.ep;
  if (sizes.ep == 1) own.expert_copies = 0;
  SLX_CHECK(own.placement().is_legal(), "{} copies of {} experts on {} ranks",
            own.placement().num_copies, own.router.num_experts, sizes.ep);
  if (!own.shared) return own;
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
  gate_up.shards = {by_expert, {.axis = 1, .sections = {{f}, {f}}}};
  down.shards = {by_expert, {.axis = 2}};

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
  p.gate_up_weight = list.add(std::move(gate_up));
  p.down_weight = list.add(std::move(down));
  p.shared = {kNoParameter, kNoParameter, kNoParameter, kNoParameter};
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
    refuse(
        fmt::format("{} experts{}; the kernels serve up to {}", placement.num_copies,
                    placement.has_redundant() ? ", redundant ones counted" : "", ops::kMostExperts),
        "num_experts");
  if (router.top_k > ops::kMostRoutedTo)
    refuse(fmt::format("{} experts of a token; the router serves up to {}", router.top_k,
                       ops::kMostRoutedTo),
           "num_experts_per_tok");
  if (router.num_groups > ops::kMostExpertGroups)
    refuse(fmt::format("{} groups of experts; the router serves up to {}", router.num_groups,
                       ops::kMostExpertGroups),
           "n_group");
  if (spec.intermediate_size % 8 != 0)
    refuse(fmt::format("experts of {} elements; their products serve multiples of 8",
                       spec.intermediate_size),
           "moe_intermediate_size");
  if (spec.hidden_size % 8 != 0)
    refuse(
        fmt::format("hidden size {}; products of experts serve multiples of 8", spec.hidden_size),
        "hidden_size");
}

double forward_flops(const MoeMlpSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), h = static_cast<double>(s.hidden_size);
  const double experts =
      6 * n * static_cast<double>(s.router.top_k) * h * static_cast<double>(s.intermediate_size);
  const double router = 2 * n * h * static_cast<double>(s.router.num_experts);
  return experts + router + (s.shared ? forward_flops(*s.shared, num_tokens) : 0);
}

}  // namespace slimexx::model
