// Estimates times as FLOPs / rate and bytes / rate, with the rates of tensor/device_kinds.h.
// Checked against whole steps on one to four GPUs. Sources of error: products of tensor-parallel
// shards are smaller than the measured ones, and only the communication of gradients counts as
// overlapped.
#include "rl/plan/plan_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rl/config/response_lengths.h"
#include "rl/generation/sample_source.h"
#include "slimexx/rollout/decode_rates.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rl {
namespace {

// A family of models and its rates on a device.
struct Family {
  const char* name;
  tensor::ProductRates rates;
};
// Bytes of AdamW per element: gradient read, weight written, master and moments read and written.
double update_bytes(const train::OptimizerOptions& options) {
  const int moment = options.state_dtype == "bfloat16" ? 2 : 4;
  return 4 + 2 + 2 * 4 + 2 * 2 * moment;
}

double host_bytes_per_s(int ranks, const tensor::HostUpdateRates& rates) {
  return std::clamp(rates.of_rank * ranks, rates.least, rates.most);
}

// Dispatch and combine never use the low-latency protocol.
double expert_exchange_seconds(double bytes, int ranks, const tensor::DeviceKind& gpu) {
  return 2 * (gpu.exchange_seconds + gpu.expert_doubling_seconds * std::log2(ranks / 2.0) +
              bytes / gpu.nvlink_bytes_per_s);
}

double exchange_seconds(double bytes_for_each, int ranks, const tensor::DeviceKind& gpu) {
  const double time_of_bytes = bytes_for_each * (ranks - 1) / gpu.nvlink_bytes_per_s;
  return bytes_for_each <= gpu.low_latency_bytes ? gpu.low_latency_seconds + 2 * time_of_bytes
                                                 : gpu.exchange_seconds + time_of_bytes;
}

Family family_of(const model::ModelSpec& spec, const tensor::DeviceKind& gpu) {
  auto last = model::RateClass::kDense;
  for (const model::LayerSpec& layer : spec.layers) last = std::max(last, model::rate_class(layer));
  switch (last) {
    case model::RateClass::kDense:
      break;
    case model::RateClass::kExperts:
      return {"experts over grouped-query attention", gpu.experts};
    case model::RateClass::kLatentAttention:
      return {"latent attention", gpu.latent_attention};
  }
  return {"dense layers", gpu.dense};
}

double count(int64_t n) { return static_cast<double>(n); }

double choices_of_token(const model::ModelSpec& spec) {
  const ops::RouterRule* router = model::find_router(spec);
  return router == nullptr ? 0 : count(router->top_k);
}

// Blocks whose rows the tensor-parallel ranks of an engine gather and reduce: attention; also dense
// MLPs and shared experts, unless every rank has a full copy of them.
int64_t count_split_blocks(const model::ModelSpec& spec, const EngineShape& engines) {
  int64_t blocks = spec.num_layers();
  if (engines.dense_tp == 1) return blocks;
  for (const model::LayerSpec& layer : spec.layers) {
    const auto gathers = [](const auto& mlp) { return gathers_tp_rows(mlp); };
    blocks += std::visit(gathers, layer.mlp) ? 1 : 0;
  }
  return blocks;
}

int64_t count_expert_layers(const model::ModelSpec& spec) {
  return std::ranges::count_if(
      spec.layers, [](const model::LayerSpec& layer) { return model::router(layer) != nullptr; });
}

// Formats seconds as milliseconds.
std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }

class PhasePlanner {
 public:
  PhasePlanner(const PlanRequest& request, RunPlan& plan)
      : config_(request.config),
        plan_(plan),
        gpu_(plan.gpu),
        family_(family_of(plan.spec, plan.gpu)) {
    for (const model::LayerSpec& layer : plan.spec.layers)
      layer_waits_ += rollout::layer_wait_seconds(layer, gpu_.layer_waits);
  }

  void make() {
    if (generates_samples(config_)) generate();
    if (needs_engine(config_)) hand_over();
    train();
    score_by_reference();
    exchange();
    update();
  }

 private:
  void add(const std::string& name, double seconds, const std::string& how) {
    plan_.phases.push_back({name, seconds, how});
  }

  // Every attention group generates its share, in as large a batch as memory allows.
  void generate() {
    const PlannedLengths& l = plan_.lengths;
    const EngineShape& engines = plan_.engines;
    // Samples of the first draw of dynamic sampling; it may be the only one.
    const RolloutOptions& o = config_.rollout;
    const int64_t samples = plan_.samples_per_step * plan_.num_steps *
                            o.over_sampling_batch_size.value_or(o.rollout_batch_size) /
                            o.rollout_batch_size;
    const int64_t groups = int64_t{engines.num_engines} * engines.num_attention_groups();
    const int64_t own = (samples + groups - 1) / groups;
    const PlannedStage& stage = plan_.engine_stage();
    int64_t running = std::min(own, engine_options(o, l.max_positions).max_running_requests);
    if (stage.cache_tokens > 0)
      running = std::clamp<int64_t>(stage.cache_tokens / l.mean(), 1, running);
    const ResponseLengths lengths(std::min(l.mean_response, l.longest_response),
                                  l.longest_response);
    double steps = 0;
    StepTime all;
    for (const auto& stretch : lengths.list_stretches(count(own), count(running))) {
      const StepTime step = step_of(stretch.running, stretch.age);
      steps += stretch.steps;
      all.bytes += stretch.steps * step.bytes;
      all.exchange += stretch.steps * step.exchange;
      all.seconds += stretch.steps * step.seconds;
    }
    // The samples of a group share their prompt, which is computed once.
    const int64_t prompts = std::max<int64_t>(own / o.n_samples_per_prompt, 1);
    const double prefill = count(prompts) * model::forward_flops(plan_.spec, l.mean_prompt) /
                           (engines.sizes.tp * family_.rates.prefill);
    add("generation", prefill + all.seconds,
        fmt::format("{} samples per attention group, {} in a batch{}; {:.0f} steps of {}: {:.1f} "
                    "GB at {:.0f} % of copy bandwidth{}",
                    own, running, l.mean_response < l.longest_response ? ", then fewer" : "", steps,
                    milliseconds(all.seconds / steps), all.bytes / steps / 1e9,
                    100 * gpu_.decode_copy_share, text_of_exchange(all.exchange / steps)));
  }

  struct StepTime {
    double bytes = 0, exchange = 0, seconds = 0;
  };
  // A decode step of an attention group with `running` samples that have `age` new tokens each.
  StepTime step_of(double running, double age) const {
    const EngineShape& engines = plan_.engines;
    const PlannedStage& stage = plan_.engine_stage();
    // Each rank of a group holds the keys and values of its own heads.
    const double keys = running * (count(plan_.lengths.mean_prompt) + age);
    // Each rank routes its share of its group's rows to the experts of ep ranks.
    const double routed = running * engines.sizes.ep / engines.sizes.tp;
    const double weights =
        stage.decode_dense_bytes +
        stage.decode_expert_bytes * model::share_of_experts(model::expert_rate(plan_.spec), routed);
    const double rate = gpu_.copy_bytes_per_s * gpu_.decode_copy_share;
    const double products = running * model::forward_flops(plan_.spec, 1) / engines.sizes.tp;
    StepTime step;
    step.bytes = weights + keys * stage.bytes_per_cached_token +
                 running * rollout::bytes_of_logits(plan_.spec);
    step.exchange = exchange_of_step(std::llround(std::ceil(running)));
    // With many rows, products are bound by compute instead of reading weights.
    step.seconds = std::max(weights / rate, products / gpu_.decode_flop_per_s) +
                   (step.bytes - weights) / rate + layer_waits_ + step.exchange;
    return step;
  }

  double exchange_of_step(int64_t running) const {
    if (plan_.engines.num_ranks > gpu_.gpus_per_host) return 0;
    return exchange_of_rows(running) + exchange_with_experts(running);
  }

  // Each rank sends its share of its group's rows to at most top_k other ranks.
  double exchange_with_experts(int64_t running) const {
    const dist::GridSizes& sizes = plan_.engines.sizes;
    const int64_t layers = count_expert_layers(plan_.spec);
    if (sizes.ep == 1 || layers == 0) return 0;
    const double copies = std::min(count(sizes.ep - 1), choices_of_token(plan_.spec));
    const double bytes = count(running) / sizes.tp * copies * count(plan_.spec.hidden_size) * 2;
    return count(layers) * expert_exchange_seconds(bytes, sizes.ep, gpu_);
  }

  // Communication of the tensor-parallel ranks of an attention group: bf16 rows of the residual
  // stream, by an all-reduce or by a reduce-scatter and an all-gather; and logits.
  double exchange_of_rows(int64_t running) const {
    const EngineShape& engines = plan_.engines;
    const int ranks = engines.sizes.tp;
    if (ranks == 1) return 0;
    const double bytes = count(running) * count(plan_.spec.hidden_size) * 2;
    const double block = running <= rollout::most_repeated_rows(plan_.spec, ranks)
                             ? exchange_seconds(bytes, ranks, gpu_)
                             : 2 * exchange_seconds(bytes / ranks, ranks, gpu_);
    return count(count_split_blocks(plan_.spec, engines)) * block +
           count(running) * (ranks - 1) / ranks * count(plan_.spec.vocab_size) * 4 /
               gpu_.nvlink_bytes_per_s;
  }

  std::string text_of_exchange(double seconds) const {
    const EngineShape& engines = plan_.engines;
    if (seconds == 0)
      return engines.num_ranks > 1 ? "; communication within an engine is not counted" : "";
    return fmt::format(", and {} of communication between {} ranks", milliseconds(seconds),
                       engines.num_ranks);
  }

  void hand_over() {
    const bool crosses = plan_.roles.world_size() > gpu_.gpus_per_host;
    const double rate = crosses ? gpu_.network_bytes_per_s : gpu_.nvlink_bytes_per_s;
    add("hand-over", count(plan_.handed_over_bytes) / rate,
        plan_.handed_over_bytes == 0
            ? "the engine reads the trainer's weights in place"
            : "all weights of an engine's rank, from the ranks that train them");
  }

  // FLOP/s of training for a stage.
  double rate_of(const PlannedStage& stage) const {
    return family_.rates.train * (gpu_.recompute_share + (1 - gpu_.recompute_share) * stage.kept);
  }

  // Communication time of one microbatch.
  double link_seconds(const PlannedStage& stage) const {
    double seconds = 0;
    for (const PlannedLink& link : stage.links)
      if (is_of_microbatch(link)) seconds += link.seconds;
    return seconds / count(plan_.microbatches);
  }

  // The microbatches of the slowest stage, plus the slots in which the pipeline waits.
  void train() {
    double slowest = 0, sent = 0, used_rate = 0;
    for (const PlannedStage& stage : plan_.stages) {
      const double rate = rate_of(stage), links = link_seconds(stage);
      const double seconds = stage.flops / rate + links;
      if (seconds <= slowest) continue;
      slowest = seconds;
      used_rate = rate;
      sent = links / seconds;
    }
    const double slots = train::count_step_slots(plan_.pipeline, plan_.microbatches);
    const double waits = slots - count(plan_.microbatches);
    add("training", count(plan_.num_steps) * slots * slowest,
        fmt::format(
            "{} x {} microbatches{} of {:.3f} s at {:.0f} TFLOP/s (rate of {}), {:.0f} % of "
            "the time in communication{}",
            plan_.num_steps, plan_.microbatches,
            waits > 0 ? fmt::format(" (+{:.3g} of pipeline bubble)", waits) : "", slowest,
            used_rate / 1e12, family_.name, 100 * sent,
            used_rate < 0.99 * family_.rates.train ? "; with recomputation" : ""));
  }

  // Forward of the same rows, with a third of the communication of training. The reference is
  // assumed to have the policy's sizes.
  void score_by_reference() {
    if (!needs_reference(config_)) return;
    double slowest = 0;
    for (const PlannedStage& stage : plan_.stages)
      slowest = std::max(slowest, stage.forward_flops / rate_of(stage) + link_seconds(stage) / 3);
    const double seconds = count(plan_.num_steps) * slowest *
                           train::count_scoring_slots(plan_.pipeline, plan_.microbatches);
    const int every = config_.rl.logs_reference_only() ? config_.rl.log_ref_kl_interval : 1;
    add("reference", seconds / every,
        every == 1 ? "forward only"
                   : fmt::format("forward only, every {} rollouts, averaged", every));
  }

  static bool is_of_microbatch(const PlannedLink& link) {
    return !link.what.starts_with("gradients") && !link.what.starts_with("weights");
  }

  void exchange() {
    double most = 0;
    for (const PlannedStage& stage : plan_.stages) {
      double seconds = 0;
      for (const PlannedLink& link : stage.links) {
        if (link.what.starts_with("gradients")) seconds += gpu_.exposed_gradients * link.seconds;
        if (link.what.starts_with("weights")) seconds += link.seconds;
      }
      most = std::max(most, seconds);
    }
    if (most > 0)
      add("gradients and weights", count(plan_.num_steps) * most,
          fmt::format(
              "{:.0f} % of the reduce-scatter (backward hides the rest), and the all-gather",
              100 * gpu_.exposed_gradients));
  }

  void update() {
    double most = 0;
    for (const PlannedStage& stage : plan_.stages)
      most = std::max(most, count(stage.owned_elements));
    const bool is_on_host = plan_.stages[0].host_bytes > 0;
    const int sharing = std::min(gpu_.gpus_per_host, plan_.roles.num_trainers);
    const double rate = is_on_host ? host_bytes_per_s(sharing, gpu_.host_updates) / sharing
                                   : gpu_.update_copy_share * gpu_.copy_bytes_per_s;
    add("update", count(plan_.num_steps) * most * update_bytes(config_.optimizer) / rate,
        is_on_host
            ? fmt::format("AdamW in host memory at {:.0f} GB/s per rank", rate * 1e-9)
            : fmt::format("AdamW at {:.0f} % of copy bandwidth", 100 * gpu_.update_copy_share));
  }

  const RunConfig& config_;
  RunPlan& plan_;
  const tensor::DeviceKind& gpu_;
  Family family_;
  double layer_waits_ = 0;  // per decode step, in seconds
};

}  // namespace

void plan_phases(const PlanRequest& request, RunPlan& plan) { PhasePlanner(request, plan).make(); }

}  // namespace slimexx::rl
