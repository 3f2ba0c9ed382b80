#include "rl/generation/weight_hand_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/make_once.h"
#include "slimexx/model/encoding.h"
#include "slimexx/model/weight_hash.h"

namespace slimexx::rl {
namespace {

std::vector<std::vector<uint64_t>> gather_hashes(const model::ParameterStore& store,
                                                 dist::Collective& host) {
  const std::vector<uint64_t> own = model::hash_parts(store);
  std::vector<std::vector<uint64_t>> by_rank;
  for (const std::string& bytes : dist::all_gather_bytes(
           host, std::string(reinterpret_cast<const char*>(own.data()), own.size() * 8))) {
    by_rank.emplace_back(bytes.size() / 8);
    std::ranges::copy(bytes, reinterpret_cast<char*>(by_rank.back().data()));  // may be empty
  }
  return by_rank;
}

void compare(const model::WeightHashes& trainer, const model::WeightHashes& engine) {
  for (const auto& [name, hash] : trainer) {
    const auto found = engine.find(name);
    if (found != engine.end() && found->second == hash) continue;
    throw Error(ErrorCode::kCheck,
                fmt::format("the engine's weights differ from the trainer's: {} {}", name,
                            found == engine.end() ? "is missing" : "differs"),
                "report this bug: rollouts would be sampled from wrong weights", name);
  }
}

}  // namespace

model::WeightPlan plan_hand_over(const model::Layout& trainer, const model::Layout& engine,
                                 dist::Collective& host) {
  const bool together = dist::are_in_one_process(host);
  std::vector<int> planned{host.rank()};
  if (together) {
    planned.resize(static_cast<size_t>(host.size()));
    std::iota(planned.begin(), planned.end(), 0);
  }
  const auto plans = dist::make_once(host, [&] {
    return model::make_weight_plans(model::list_moved(trainer), model::list_moved(engine), planned);
  });
  return plans->at(together ? static_cast<size_t>(host.rank()) : 0);
}

WeightHandOver::WeightHandOver(HeldWeights trainer, HeldWeights engine, model::WeightPlan plan,
                               dist::Collective& ranks, tensor::Device device)
    : trainer_(std::move(trainer)),
      engine_(std::move(engine)),
      ranks_(ranks),
      plan_(std::move(plan)),
      staging_(device, 0, "hand-over of weights") {
  tensor::Arena needed = tensor::Arena::for_planning(device, "hand-over of weights");
  model::move_weights(ops::planning_context(needed), plan_, trainer_.store, engine_.store, ranks);
  staging_.reserve(needed.high_water_bytes());
}

model::WeightTraffic WeightHandOver::move() {
  const ops::Context ctx = ops::compute_context(staging_);
  const model::WeightTraffic traffic =
      model::move_weights(ctx, plan_, trainer_.store, engine_.store, ranks_);
  if (traffic.copied + traffic.sent + traffic.received > 0) tensor::synchronize(ctx.stream);
  return traffic;
}

// All ranks compare the hashes of all ranks, so they throw the same error.
uint64_t WeightHandOver::check(dist::Collective& host) const {
  const auto trainer = gather_hashes(trainer_.store, host);
  const auto engine = gather_hashes(engine_.store, host);
  try {
    return *dist::make_once(host, [&] {
      const auto expected = model::sum_hashes(trainer_.layout, trainer, "the trainer");
      const auto found = model::sum_hashes(engine_.layout, engine, "the engine");
      compare(expected, found);
      return model::total_hash(found);
    });
  } catch (const Error& error) {
    throw dist::AgreedError(error);
  }
}

}  // namespace slimexx::rl
