// Times are operations over rates and bytes over rates, the rates as docs/performance.md has them
// for an H200. Products of tensor-parallel shards are smaller than those measured, and what may
// overlap counts in full but for gradients: an estimate, checked against whole steps of one to four
// GPUs.
#include "plan_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "training_run.h"

namespace slimexx::rl {
namespace {

// Of a model family's layers on an H200.
struct FamilyRates {
  const char* name;
  double train;          // model operations a second, 3 x forward, every layer keeps everything
  double prefill;        // operations of the forward a second
  double share_of_copy;  // bytes of weights and keys a decode step reads, over copy bandwidth
};
constexpr FamilyRates kDense{"dense layers", 556e12, 700e12, 0.83};
constexpr FamilyRates kExperts{"experts over grouped-query attention", 472e12, 480e12, 0.88};
constexpr FamilyRates kLatent{"latent attention", 416e12, 365e12, 0.80};
// Layers that keep their inputs alone: 492 of 556 TFLOP/s (Qwen3-4B). Of experts not measured.
constexpr double kFullRecompute = 492.0 / 556;
// Of a gradient exchange this much stays behind backward (four H200s).
constexpr double kExposedGradients = 0.3;
// AdamW of an element: gradient and weight, master and moments read and written.
constexpr double kUpdateBytes = 30;

FamilyRates rates_of(const model::ModelSpec& spec) {
  bool has_experts = false, is_latent = false;
  for (const model::LayerSpec& layer : spec.layers) {
    has_experts |= std::holds_alternative<model::MoeMlpSpec>(layer.mlp);
    is_latent |= std::holds_alternative<model::MlaSpec>(layer.attention);
  }
  return is_latent ? kLatent : has_experts ? kExperts : kDense;
}

double count(int64_t n) { return static_cast<double>(n); }

// Bytes of weights that a decode step of `batch` tokens reads: of E experts those that at least one
// of the tokens meets, E (1 - (1 - k/E)^batch) by a router that spreads evenly.
double weight_bytes(const model::ModelSpec& spec, double batch) {
  constexpr double kBytes = 2;
  double met = 0;
  for (const auto& info : model::list_parameters(spec)) {
    if (info.name == "embedding.weight" && !spec.tied_embeddings) continue;
    double elements = count(info.num_elements());
    if (info.reduce_group == model::ReduceGroup::kExpert) {
      for (const model::LayerSpec& layer : spec.layers) {
        const auto* moe = std::get_if<model::MoeMlpSpec>(&layer.mlp);
        if (moe == nullptr) continue;
        const double share = count(moe->router.top_k) / count(moe->router.num_experts);
        elements *= 1 - std::pow(1 - share, batch);
        break;
      }
    }
    met += elements;
  }
  return met * kBytes;
}

class PhasePlanner {
 public:
  PhasePlanner(const PlanRequest& request, RunPlan& plan)
      : config_(request.config), plan_(plan), gpu_(plan.gpu), rates_(rates_of(plan.spec)) {}

  void make() {
    if (wants_engine(config_)) {
      generate();
      hand_over();
    }
    train();
    exchange();
    update();
  }

 private:
  void add(const std::string& name, double seconds, const std::string& how) {
    plan_.phases.push_back({name, seconds, how});
  }

  // Every engine generates its share; as many sequences at once as there is room for.
  void generate() {
    const PlannedLengths& l = plan_.lengths;
    const int64_t samples = plan_.samples_per_step * plan_.num_steps;
    const int64_t engines = plan_.grid.world_size();
    const int64_t own = (samples + engines - 1) / engines;
    const PlannedStage& stage =
        *std::ranges::min_element(plan_.stages, {}, [](const auto& s) { return s.cache_tokens; });
    int64_t running = std::min(own, config_.rollout.max_running_requests);
    if (stage.cache_tokens > 0)
      running = std::clamp<int64_t>(stage.cache_tokens / l.mean(), 1, running);
    const double copy = gpu_.copy_bytes_per_s * rates_.share_of_copy;
    const double keys = count(running) * (count(l.mean_prompt) + count(l.mean_response) / 2);
    const double cache_bytes =
        stage.cache_tokens > 0 ? count(stage.cache_bytes) / count(stage.cache_tokens) : 0;
    const double bytes = weight_bytes(plan_.spec, count(running)) + keys * cache_bytes;
    const double steps = count(own) * count(l.mean_response) / count(running);
    // A group shares its prompt, which is computed once.
    const int64_t prompts = std::max<int64_t>(own / config_.rollout.n_samples_per_prompt, 1);
    const double prefill = count(prompts) * model::forward_flops(plan_.spec, l.mean_prompt) /
                           (rates_.prefill * gpu_.compute);
    add("generation", prefill + steps * bytes / copy,
        fmt::format("{} samples an engine, {} at a time; {:.0f} steps of {:.1f} ms: {:.1f} GB at "
                    "{:.0f} % of copy",
                    own, running, steps, 1e3 * bytes / copy, bytes / 1e9,
                    100 * rates_.share_of_copy));
  }

  void hand_over() {
    const bool crosses = plan_.grid.world_size() > 8;
    const double rate = crosses ? gpu_.network_bytes_per_s : gpu_.nvlink_bytes_per_s;
    add("hand-over", count(plan_.handed_over_bytes) / rate,
        plan_.handed_over_bytes == 0 ? "the engine reads the trainer's weights in place"
                                     : "weights that a rank's engine has and its trainer has not");
  }

  // The slowest stage's microbatches, and a pipeline that fills and empties: (m + p - 1) of them.
  void train() {
    double slowest = 0, sent = 0;
    for (const PlannedStage& stage : plan_.stages) {
      const double rate =
          rates_.train * gpu_.compute * (kFullRecompute + (1 - kFullRecompute) * stage.kept);
      double links = 0;
      for (const PlannedLink& link : stage.links)
        if (is_of_microbatch(link)) links += link.seconds;
      const double seconds = stage.flops / rate + links / count(plan_.microbatches);
      if (seconds <= slowest) continue;
      slowest = seconds;
      sent = links / count(plan_.microbatches) / seconds;
    }
    const int64_t p = plan_.grid.sizes().pp;
    const double slots = count(plan_.microbatches + p - 1);
    add("training", count(plan_.num_steps) * slots * slowest,
        fmt::format("{} x {} microbatches{} of {:.3f} s at {:.0f} TFLOP/s of {}, {:.0f} % of it "
                    "exchange",
                    plan_.num_steps, plan_.microbatches,
                    p > 1 ? fmt::format(" (+{} that the pipeline waits)", p - 1) : "", slowest,
                    rates_.train * gpu_.compute / 1e12, rates_.name, 100 * sent));
  }

  static bool is_of_microbatch(const PlannedLink& link) {
    return !link.what.starts_with("gradients") && !link.what.starts_with("weights");
  }

  void exchange() {
    double most = 0;
    for (const PlannedStage& stage : plan_.stages) {
      double seconds = 0;
      for (const PlannedLink& link : stage.links) {
        if (link.what.starts_with("gradients")) seconds += kExposedGradients * link.seconds;
        if (link.what.starts_with("weights")) seconds += link.seconds;
      }
      most = std::max(most, seconds);
    }
    if (most > 0)
      add("gradients and weights", count(plan_.num_steps) * most,
          fmt::format("{:.0f} % of the reduce-scatter, which backward hides else, and the "
                      "all-gather",
                      100 * kExposedGradients));
  }

  void update() {
    double most = 0;
    for (const PlannedStage& stage : plan_.stages)
      most = std::max(most, count(stage.offload_bytes) / 12 * kUpdateBytes);
    add("update", count(plan_.num_steps) * most / (0.9 * gpu_.copy_bytes_per_s),
        "AdamW at 90 % of copy");
  }

  const RunConfig& config_;
  RunPlan& plan_;
  const GpuKind& gpu_;
  FamilyRates rates_;
};

}  // namespace

void plan_phases(const PlanRequest& request, RunPlan& plan) { PhasePlanner(request, plan).make(); }

}  // namespace slimexx::rl
