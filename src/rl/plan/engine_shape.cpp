#include "slimexx/rl/engine_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/model/encoding.h"

namespace slimexx::rl {
namespace {

constexpr const char* kRanks = "rollout.rollout_num_gpus_per_engine";
constexpr const char* kDp = "rollout.dp_size";
constexpr const char* kEp = "rollout.ep_size";
constexpr const char* kRedundant = "rollout.ep_num_redundant_experts";

struct EngineSizes {
  int64_t ranks = 1, dp = 1, ep = 1, redundant = 0;
  int64_t tp() const { return std::max<int64_t>(ranks / dp, 1); }  // TP of attention
  dist::GridSizes grid() const {
    return {.tp = static_cast<int>(tp()), .ep = static_cast<int>(ep)};
  }
};

struct EngineFault {
  std::string what, key, why = {};  // why: added to the hint
};

// Limits that the sizes of engines must respect.
struct EngineBounds {
  int64_t world_size = 1, trainer_tp = 1;
  const model::ModelSpec* spec = nullptr;
};

std::string attention_tp(const EngineSizes& sizes) {
  return fmt::format("attention TP {} = rollout_num_gpus_per_engine {} / dp_size {}", sizes.tp(),
                     sizes.ranks, sizes.dp);
}

std::optional<EngineFault> find_model_fault(const EngineSizes& sizes,
                                            const model::ModelSpec& spec) {
  const int64_t experts = count_experts(spec);
  if (sizes.ep > 1 && experts == 0)
    return EngineFault{fmt::format("ep_size is {}, but the model has no experts", sizes.ep), kEp};
  if (sizes.ep > 1 &&
      !model::ExpertPlacement{experts, experts + sizes.redundant, sizes.ep}.is_legal())
    return EngineFault{fmt::format("{} experts and {} redundant ones on ep_size {}: each rank must "
                                   "hold at least one, and no expert twice",
                                   experts, sizes.redundant, sizes.ep),
                       sizes.redundant > 0 ? kRedundant : kEp};
  try {
    model::narrow(spec, {.tp = sizes.grid().tp});
  } catch (const Error& error) {
    return EngineFault{fmt::format("{}: {}", attention_tp(sizes), error.message()), kRanks};
  }
  return std::nullopt;
}

std::optional<EngineFault> find_engine_fault(const EngineSizes& sizes, const EngineBounds& bounds) {
  if (bounds.world_size % sizes.ranks != 0)
    return EngineFault{fmt::format("{} ranks cannot be divided into engines of {} ranks",
                                   bounds.world_size, sizes.ranks),
                       kRanks};
  if (sizes.ranks % sizes.dp != 0)
    return EngineFault{fmt::format("rollout_num_gpus_per_engine {} % dp_size {} = {}", sizes.ranks,
                                   sizes.dp, sizes.ranks % sizes.dp),
                       kDp};
  if (sizes.ranks % sizes.ep != 0)
    return EngineFault{fmt::format("rollout_num_gpus_per_engine {} % ep_size {} = {}", sizes.ranks,
                                   sizes.ep, sizes.ranks % sizes.ep),
                       kEp};
  if (sizes.ep % sizes.tp() != 0 && sizes.tp() % sizes.ep != 0)
    return EngineFault{
        fmt::format("{}, and ep_size {}: neither is a multiple of the other, so the ranks of an "
                    "attention group would be in different expert groups",
                    attention_tp(sizes), sizes.ep),
        kEp};
  if (sizes.redundant > 0 && sizes.ep == 1)
    return EngineFault{
        fmt::format("is {}, but with ep_size 1 every rank holds all experts", sizes.redundant),
        kRedundant};
  if (sizes.tp() != 1 && bounds.trainer_tp != 1 && sizes.tp() != bounds.trainer_tp)
    return EngineFault{fmt::format("{}, and parallel.tensor_model_parallel_size {}: their results "
                                   "are bit-identical only if both are equal or one of them is 1",
                                   attention_tp(sizes), bounds.trainer_tp),
                       kRanks,
                       "; with other sizes the engine would sum in a different order than "
                       "training, and their log-probs would differ"};
  return bounds.spec != nullptr ? find_model_fault(sizes, *bounds.spec) : std::nullopt;
}

// Numbers of redundant experts to try with an ep_size: the wanted number, none, and the largest
// number up to the wanted one that the ranks can place.
std::vector<int64_t> list_redundant(const EngineSizes& wanted, int64_t ep,
                                    const EngineBounds& bounds) {
  std::vector<int64_t> numbers{wanted.redundant};
  if (wanted.redundant == 0) return numbers;
  numbers.push_back(0);
  if (bounds.spec == nullptr) return numbers;
  const int64_t experts = count_experts(*bounds.spec);
  for (int64_t n = std::min(wanted.redundant, experts * ep); n > 0; --n) {
    if (!model::ExpertPlacement{experts, experts + n, ep}.is_legal()) continue;
    numbers.push_back(n);
    break;
  }
  return numbers;
}

// Number of keys to change; data-parallel attention needs a second key.
int count_changes(const EngineSizes& from, const EngineSizes& to) {
  return (to.ranks != from.ranks ? 1 : 0) + (to.dp != from.dp ? 1 : 0) +
         (to.dp > 1 && from.dp == 1 ? 1 : 0) + (to.ep != from.ep ? 1 : 0) +
         (to.redundant != from.redundant ? 1 : 0);
}

// Sizes that fit, with the fewest changes, then the nearest TP of attention. One rank per engine
// always fits.
EngineSizes find_nearest(const EngineSizes& wanted, const EngineBounds& bounds) {
  std::vector<EngineSizes> all;
  for (int64_t ranks = 1; ranks <= bounds.world_size; ++ranks) {
    if (bounds.world_size % ranks != 0) continue;
    for (int64_t dp = 1; dp <= ranks; ++dp)
      for (int64_t ep = 1; ranks % dp == 0 && ep <= ranks; ++ep)
        if (ranks % ep == 0)
          for (const int64_t redundant : list_redundant(wanted, ep, bounds))
            all.push_back({ranks, dp, ep, redundant});
  }
  const auto ratio = [&](int64_t tp) {
    const int64_t less = std::min(tp, wanted.tp()), more = std::max(tp, wanted.tp());
    return static_cast<double>(more) / static_cast<double>(less);
  };
  std::ranges::stable_sort(all, {}, [&](const EngineSizes& sizes) {
    return std::tuple(count_changes(wanted, sizes), ratio(sizes.tp()),
                      sizes.tp() != bounds.trainer_tp, (sizes.ep > 1) != (wanted.ep > 1),
                      std::abs(sizes.ranks - wanted.ranks), std::abs(sizes.ep - wanted.ep),
                      std::abs(sizes.dp - wanted.dp), std::abs(sizes.redundant - wanted.redundant));
  });
  for (const EngineSizes& sizes : all)
    if (!find_engine_fault(sizes, bounds)) return sizes;
  return {};
}

// The sizes as text; mentions redundant experts if `sizes` or `wanted` has some.
std::string describe_sizes(const EngineSizes& sizes, const EngineSizes& wanted) {
  std::string redundant;
  if (sizes.redundant > 0)
    redundant = fmt::format(", ep_num_redundant_experts {}", sizes.redundant);
  else if (wanted.redundant > 0)
    redundant = ", without ep_num_redundant_experts";
  return fmt::format("rollout_num_gpus_per_engine {}, dp_size {}{}, ep_size {}{}", sizes.ranks,
                     sizes.dp, sizes.dp > 1 ? " with enable_dp_attention: true" : "", sizes.ep,
                     redundant);
}

}  // namespace

int64_t count_experts(const model::ModelSpec& spec) {
  const ops::RouterRule* router = model::find_router(spec);
  return router == nullptr ? 0 : router->num_experts;
}

EngineShape make_engine_shape(const RolloutOptions& options, const dist::GridSizes& trainer,
                              int world_size, const model::ModelSpec* spec) {
  const EngineSizes sizes{options.rollout_num_gpus_per_engine, options.dp_size, options.ep_size,
                          options.ep_num_redundant_experts};
  if (sizes.dp > 1 && !options.enable_dp_attention)
    throw Error(ErrorCode::kUsage,
                fmt::format("is {}, and rollout.enable_dp_attention is false", sizes.dp),
                "set enable_dp_attention: true, or leave dp_size out", kDp);
  if (options.enable_dp_lm_head && !options.enable_dp_attention)
    throw Error(ErrorCode::kUsage, "is true, and rollout.enable_dp_attention is false",
                "set enable_dp_attention: true, or leave it out", "rollout.enable_dp_lm_head");
  const EngineBounds bounds{world_size, trainer.tp, spec};
  if (const auto fault = find_engine_fault(sizes, bounds))
    throw Error(
        ErrorCode::kUsage, fault->what,
        "nearest valid sizes: " + describe_sizes(find_nearest(sizes, bounds), sizes) + fault->why,
        fault->key);
  const int64_t dense_tp = options.moe_dense_tp_size.value_or(sizes.tp());
  if (dense_tp != 1 && dense_tp != sizes.tp())
    throw Error(ErrorCode::kUsage,
                fmt::format("moe_dense_tp_size {} with {}: dense layers are either split like "
                            "attention or replicated on every rank",
                            dense_tp, attention_tp(sizes)),
                fmt::format("nearest valid size: moe_dense_tp_size {}", sizes.tp()),
                "rollout.moe_dense_tp_size");
  return {.num_engines = static_cast<int>(world_size / sizes.ranks),
          .num_ranks = static_cast<int>(sizes.ranks),
          .sizes = sizes.grid(),
          .redundant_experts = static_cast<int>(sizes.redundant),
          .dense_tp = static_cast<int>(dense_tp),
          .leaves = count_leaves(options, trainer)};
}

int64_t count_leaves(const RolloutOptions& options, const dist::GridSizes& trainer) {
  return std::max<int64_t>(options.rollout_num_gpus_per_engine / options.dp_size, trainer.tp);
}

std::string describe_engine(const EngineShape& shape) {
  return fmt::format("{} attention group{} of TP {}, EP {}{}", shape.num_attention_groups(),
                     shape.num_attention_groups() == 1 ? "" : "s", shape.sizes.tp, shape.sizes.ep,
                     shape.redundant_experts > 0
                         ? fmt::format(" with {} redundant experts", shape.redundant_experts)
                         : "");
}

model::ModelSpec make_engine_spec(const EngineShape& shape, model::ModelSpec spec) {
  const model::EngineLayout layout{.replicates_dense = shape.dense_tp != shape.sizes.tp,
                                   .splits_experts = shape.sizes.ep > 1,
                                   .redundant_experts = shape.redundant_experts};
  const auto adapt = [&](model::LayerSpec& layer) {
    std::visit([&](auto& mlp) { adapt_to_engine(mlp, layout); }, layer.mlp);
  };
  std::ranges::for_each(spec.layers, adapt);
  for (model::MtpSpec& mtp : spec.mtp) adapt(mtp.layer);
  if (spec.encoding != nullptr && spec.encoding->is_for_engines) {
    model::Encoding computed = *spec.encoding;
    computed.is_for_engines = false;
    spec.encoding = std::make_shared<const model::Encoding>(computed);
  }
  return spec;
}

bool holds_trained_shards(const EngineShape& shape, const dist::GridSizes& trainer,
                          const model::ModelSpec& spec) {
  const dist::GridSizes& engine = shape.sizes;
  return trainer.pp == 1 && trainer.tp == engine.tp && shape.dense_tp == engine.tp &&
         (count_experts(spec) == 0 ||
          (trainer.ep == engine.ep && trainer.etp == engine.etp && shape.redundant_experts == 0));
}

}  // namespace slimexx::rl
