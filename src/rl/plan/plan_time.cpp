// Times are operations over rates and bytes over rates, with the H200's rates from
// docs/performance.md. It is an estimate, checked against whole steps on one to four GPUs: products
// of tensor-parallel shards are smaller than the measured ones, and all communication but that of
// gradients counts as not overlapped.
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

// Rates of a model family's layers on an H200.
struct FamilyRates {
  const char* name;
  double train;    // FLOP/s of training (3 x forward), without recompute
  double prefill;  // FLOP/s of the forward
};
constexpr FamilyRates kDense{"dense layers", 556e12, 700e12};
constexpr FamilyRates kExperts{"experts over grouped-query attention", 472e12, 480e12};
constexpr FamilyRates kLatent{"latent attention", 416e12, 365e12};
// Share of the copy bandwidth at which a decode step reads weights and keys, apart from the waits
// of its layers.
constexpr double kShareOfCopy = 0.93;
// FLOP/s of a compute-bound decode step: with 256 rows 530 to 680 TFLOP/s.
constexpr double kDecodeProducts = 600e12;
// Speed with full recompute: 492 of 556 TFLOP/s (Qwen3-4B). Not measured for experts.
constexpr double kFullRecompute = 492.0 / 556;
// Share of the gradients' reduce-scatter that backward does not hide (four H200s).
constexpr double kExposedGradients = 0.3;
// Bytes of AdamW per element: gradient read, weight written, master and moments read and written.
double update_bytes(const train::OptimizerOptions& options) {
  const int moment = options.state_dtype == "bfloat16" ? 2 : 4;
  return 4 + 2 + 2 * 4 + 2 * 2 * moment;
}
constexpr int kRanksOfHost = 8;
// Optimizer updates in host memory, as bytes of update_bytes per second for all ranks of a host:
// one rank 117e9 (H200, 16 cores), two 103e9 (H100s, 32 cores), four 231e9 (H200s, 64 cores). More
// ranks are not measured; they are assumed to be little faster.
double host_bytes_per_s(int ranks) { return std::clamp(57e9 * ranks, 110e9, 240e9); }

// Latency of an all-reduce or all-gather of rows in a recorded step, by kernels that access the
// other ranks' memory (two H100s). Up to kMailBytes per rank use the low-latency protocol: a
// sequence number in every word, which doubles the bytes but needs no other synchronization.
constexpr double kMailSeconds = 2.3e-6, kMailBytes = 512 << 10;
constexpr double kExchangeSeconds = 9.5e-6;

// Dispatch and combine never use the low-latency protocol. In steps of Qwen3-30B-A3B on H200s they
// took 23 us per layer with EP 2 and 49 us with EP 4, beyond the time for a rank's bytes.
double expert_exchange_seconds(double bytes, int ranks, double bytes_per_s) {
  return 2 * (kExchangeSeconds + 12e-6 * std::log2(ranks / 2.0) + bytes / bytes_per_s);
}

double exchange_seconds(double bytes_for_each, int ranks, double bytes_per_s) {
  const double time_of_bytes = bytes_for_each * (ranks - 1) / bytes_per_s;
  return bytes_for_each <= kMailBytes ? kMailSeconds + 2 * time_of_bytes
                                      : kExchangeSeconds + time_of_bytes;
}

FamilyRates rates_of(const model::ModelSpec& spec) {
  auto last = model::RateClass::kDense;
  for (const model::LayerSpec& layer : spec.layers) last = std::max(last, model::rate_class(layer));
  switch (last) {
    case model::RateClass::kDense:
      break;
    case model::RateClass::kExperts:
      return kExperts;
    case model::RateClass::kLatentAttention:
      return kLatent;
  }
  return kDense;
}

double count(int64_t n) { return static_cast<double>(n); }

double choices_of_token(const model::ModelSpec& spec) {
  const ops::RouterRule* router = model::find_router(spec);
  return router == nullptr ? 0 : count(router->top_k);
}

// Blocks whose rows the tensor-parallel ranks of an engine gather and reduce: attention, and dense
// MLPs and shared experts unless every rank has them whole.
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
      : config_(request.config), plan_(plan), gpu_(plan.gpu), rates_(rates_of(plan.spec)) {
    for (const model::LayerSpec& layer : plan.spec.layers)
      layer_waits_ += rollout::layer_wait_seconds(layer);
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
                           (engines.sizes.tp * rates_.prefill * gpu_.compute);
    add("generation", prefill + all.seconds,
        fmt::format("{} samples per attention group, {} in a batch{}; {:.0f} steps of {}: {:.1f} "
                    "GB at {:.0f} % of copy bandwidth{}",
                    own, running, l.mean_response < l.longest_response ? ", then fewer" : "", steps,
                    milliseconds(all.seconds / steps), all.bytes / steps / 1e9, 100 * kShareOfCopy,
                    text_of_exchange(all.exchange / steps)));
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
    const double rate = gpu_.copy_bytes_per_s * kShareOfCopy;
    const double products = running * model::forward_flops(plan_.spec, 1) / engines.sizes.tp;
    StepTime step;
    step.bytes = weights + keys * stage.bytes_per_cached_token +
                 running * rollout::bytes_of_logits(plan_.spec);
    step.exchange = exchange_of_step(std::llround(std::ceil(running)));
    // With many rows, products are bound by compute instead of reading weights.
    step.seconds = std::max(weights / rate, products / (kDecodeProducts * gpu_.compute)) +
                   (step.bytes - weights) / rate + layer_waits_ + step.exchange;
    return step;
  }

  double exchange_of_step(int64_t running) const {
    if (plan_.engines.num_ranks > kRanksOfHost) return 0;
    return exchange_of_rows(running) + exchange_with_experts(running);
  }

  // Each rank sends its share of its group's rows to at most top_k other ranks.
  double exchange_with_experts(int64_t running) const {
    const dist::GridSizes& sizes = plan_.engines.sizes;
    const int64_t layers = count_expert_layers(plan_.spec);
    if (sizes.ep == 1 || layers == 0) return 0;
    const double copies = std::min(count(sizes.ep - 1), choices_of_token(plan_.spec));
    const double bytes = count(running) / sizes.tp * copies * count(plan_.spec.hidden_size) * 2;
    return count(layers) * expert_exchange_seconds(bytes, sizes.ep, gpu_.nvlink_bytes_per_s);
  }

  // Communication of the tensor-parallel ranks of an attention group: bf16 rows of the residual
  // stream, by an all-reduce or by a reduce-scatter and an all-gather; and logits.
  double exchange_of_rows(int64_t running) const {
    const EngineShape& engines = plan_.engines;
    const int ranks = engines.sizes.tp;
    if (ranks == 1) return 0;
    const double rate = gpu_.nvlink_bytes_per_s;
    const double bytes = count(running) * count(plan_.spec.hidden_size) * 2;
    const double block = running <= rollout::most_repeated_rows(plan_.spec, ranks)
                             ? exchange_seconds(bytes, ranks, rate)
                             : 2 * exchange_seconds(bytes / ranks, ranks, rate);
    return count(count_split_blocks(plan_.spec, engines)) * block +
           count(running) * (ranks - 1) / ranks * count(plan_.spec.vocab_size) * 4 / rate;
  }

  std::string text_of_exchange(double seconds) const {
    const EngineShape& engines = plan_.engines;
    if (seconds == 0)
      return engines.num_ranks > 1 ? "; communication of its ranks is not counted" : "";
    return fmt::format(", and {} of communication between {} ranks", milliseconds(seconds),
                       engines.num_ranks);
  }

  void hand_over() {
    const bool crosses = plan_.roles.world_size() > kRanksOfHost;
    const double rate = crosses ? gpu_.network_bytes_per_s : gpu_.nvlink_bytes_per_s;
    add("hand-over", count(plan_.handed_over_bytes) / rate,
        plan_.handed_over_bytes == 0
            ? "the engine reads the trainer's weights in place"
            : "all weights of an engine's rank, from the ranks that train them");
  }

  // FLOP/s of training for a stage.
  double rate_of(const PlannedStage& stage) const {
    return rates_.train * gpu_.compute * (kFullRecompute + (1 - kFullRecompute) * stage.kept);
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
        fmt::format("{} x {} microbatches{} of {:.3f} s at {:.0f} TFLOP/s of {}, {:.0f} % of it "
                    "communication{}",
                    plan_.num_steps, plan_.microbatches,
                    waits > 0 ? fmt::format(" (+{:.3g} of pipeline bubble)", waits) : "", slowest,
                    used_rate / 1e12, rates_.name, 100 * sent,
                    used_rate < 0.99 * rates_.train * gpu_.compute ? "; with recomputation" : ""));
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
        if (link.what.starts_with("gradients")) seconds += kExposedGradients * link.seconds;
        if (link.what.starts_with("weights")) seconds += link.seconds;
      }
      most = std::max(most, seconds);
    }
    if (most > 0)
      add("gradients and weights", count(plan_.num_steps) * most,
          fmt::format(
              "{:.0f} % of the reduce-scatter (backward hides the rest), and the all-gather",
              100 * kExposedGradients));
  }

  void update() {
    double most = 0;
    for (const PlannedStage& stage : plan_.stages)
      most = std::max(most, count(stage.owned_elements));
    const bool is_on_host = plan_.stages[0].host_bytes > 0;
    const int sharing = std::min(kRanksOfHost, plan_.roles.num_trainers);
    const double rate =
        is_on_host ? host_bytes_per_s(sharing) / sharing : 0.9 * gpu_.copy_bytes_per_s;
    add("update", count(plan_.num_steps) * most * update_bytes(config_.optimizer) / rate,
        is_on_host ? fmt::format("AdamW in host memory at {:.0f} GB/s per rank", rate * 1e-9)
                   : "AdamW at 90 % of copy bandwidth");
  }

  const RunConfig& config_;
  RunPlan& plan_;
  const GpuKind& gpu_;
  FamilyRates rates_;
  double layer_waits_ = 0;  // per decode step, in seconds
};

}  // namespace

void plan_phases(const PlanRequest& request, RunPlan& plan) { PhasePlanner(request, plan).make(); }

}  // namespace slimexx::rl
