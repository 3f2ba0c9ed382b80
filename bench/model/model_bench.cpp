// Times a whole model with the shape of a config.json and random weights, on one CUDA device:
//   model_bench train CONFIG_DIR TOKENS [auto|full|none [GIB]]
// Forward, loss and backward of one packed sequence. GIB: activation memory, for auto.
//   model_bench generate CONFIG_DIR {REQUESTS[/RUNNING] IN OUT}...
// Generation by the engine. RUNNING: concurrent requests, by default all; with fewer, prefills join
// running decodes.
//   model_bench speculate CONFIG_DIR DRAFTS {REQUESTS IN OUT}...
// Generation with DRAFTS drafts per step by the model's MTP layer. This measures the cost of a step
// with drafts: with random weights hardly any draft is accepted.
//   model_bench [fp8] [fp8-cache] ...: any of these with FP8 products (numerics.fp8: on), with FP8
// keys and values (rollout.kv_cache_dtype: fp8_e4m3), or both.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/collective.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rollout/engine.h"
#include "slimexx/tensor/float8.h"
#include "slimexx/train/trainer.h"

namespace slimexx {
namespace {

constexpr tensor::Device kDevice{tensor::DeviceType::kCuda, 0};

rl::Fp8Choice fp8_choice(bool products, bool cache) {
  rl::Fp8Choice choice{.options = {}, .sizes = {}, .cache = cache};
  choice.options.fp8 = products ? "on" : "off";
  return choice;
}

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Bytes read and written per second by copies of 2 GiB.
double copy_bandwidth() {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const tensor::Buffer from(kDevice, kBytes, "copy"), to(kDevice, kBytes, "copy");
  const tensor::Tensor a = from.view(tensor::DType::kU8, {kBytes}),
                       b = to.view(tensor::DType::kU8, {kBytes});
  const tensor::Stream stream = tensor::compute_stream(kDevice);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    tensor::synchronize(stream);
    const double start = seconds();
    for (int i = 0; i < 4; ++i) tensor::copy_bytes(stream, b, a);
    tensor::synchronize(stream);
    best = std::max(best, 8.0 * kBytes / (seconds() - start));
  }
  return best;
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocabulary, uint64_t seed) {
  PhiloxStream stream(seed, 1);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>(stream.next_below(static_cast<uint64_t>(vocabulary))));
  return tokens;
}

void time_training(const std::string& directory, int64_t num_tokens, const std::string& recompute,
                   double activation_gib, const train::OptimizerOptions& optimizer,
                   const rl::Fp8Choice& fp8) {
  const rl::LoadedModel m =
      rl::make_random_model(directory, kDevice, true, 1, nullptr, {.fp8 = &fp8});
  const model::Decoder transformer(m.spec, kDevice, num_tokens);
  dist::Collective ranks;
  train::TrainOptions options;
  options.max_tokens_per_gpu = num_tokens;
  options.recompute_granularity = recompute;
  options.max_logits_gib = 5.25;
  train::Trainer trainer(transformer, *m.store, ranks, dist::groups_of_one(), options, optimizer,
                         1.0f, kDevice);
  tensor::Buffer activations;
  if (activation_gib > 0) {
    activations =
        tensor::Buffer(kDevice, static_cast<int64_t>(activation_gib * 0x1p30), "activations");
    trainer.memory().borrow(activations.view(tensor::DType::kU8, {activations.size_bytes()}));
  }
  trainer.encode_weights();
  sample::Sample sample{.tokens = random_tokens(num_tokens, m.spec.vocab_size, 7),
                        .response_length = num_tokens - 1,
                        .loss_mask = std::vector<uint8_t>(static_cast<size_t>(num_tokens - 1), 1)};
  train::StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  const tensor::Stream stream = tensor::compute_stream(kDevice);
  double whole = 1e9, passes = 1e9;
  int64_t allocations = 0;
  for (int i = 0; i < 6; ++i) {
    double updated = 0;
    const double start = seconds();
    const auto result = trainer.step({&sample, 1}, loss, 1e-6, [&] { updated = seconds(); });
    tensor::synchronize(stream);
    if (i == 1) allocations = tensor::allocation_counters(kDevice).num_allocations;
    whole = std::min(whole, seconds() - start);
    passes = std::min(passes, updated - start);
    if (i == 5)
      fmt::print(
          "train {} tokens, recompute {} (level {}, {} layers raised): forward, loss, backward, "
          "gradient norm {:.1f} ms ({:.0f} tokens/s, "
          "{:.0f} "
          "TFLOP/s of model work), with the update {:.1f} ms; peak {:.1f} GiB; {} allocations "
          "after "
          "warm-up; loss {:.4f}, |g| {:.4f}\n",
          num_tokens, recompute, static_cast<int>(result.keep.level), result.keep.num_raised,
          passes * 1e3, static_cast<double>(num_tokens) / passes, result.flops / passes * 1e-12,
          whole * 1e3,
          static_cast<double>(tensor::allocation_counters(kDevice).peak_bytes) / 0x1p30,
          tensor::allocation_counters(kDevice).num_allocations - allocations,
          result.metric(ops::LossMetric::kLoss), result.gradient_norm);
  }
}

struct Timing {
  double prefill = 0, decode = 0;
  int64_t steps = 0, decode_steps = 0;
  double host = 0, waiting = 0;  // per decode step
};

Timing run_requests(rollout::Engine& engine, const model::ModelSpec& spec, int64_t count,
                    int64_t prompt, int64_t response, uint64_t seed) {
  for (int64_t i = 0; i < count; ++i) {
    rollout::SamplingParams sampling;
    sampling.max_new_tokens = response;
    engine.submit({.id = i,
                   .prompt = std::make_shared<const std::vector<int32_t>>(
                       random_tokens(prompt, spec.vocab_size, seed + static_cast<uint64_t>(i))),
                   .sampling = sampling,
                   .name = {.seed = seed, .sample = static_cast<uint32_t>(i)}});
  }
  Timing timing;
  const double start = seconds();
  bool is_launched = false;  // the last prompt is launched; the next call waits for its step
  rollout::EngineStats before;
  while (engine.has_work()) {
    engine.step();
    if (is_launched && timing.prefill == 0) {
      timing.prefill = seconds() - start;
      before = engine.stats();
    }
    is_launched = engine.num_waiting() == 0 && engine.stats().prompt_tokens >= count * prompt;
    ++timing.steps;
  }
  timing.decode = seconds() - start - timing.prefill;
  const rollout::EngineStats& after = engine.stats();
  timing.decode_steps = after.steps - before.steps;
  const double per_step = 1e-9 / static_cast<double>(std::max<int64_t>(1, timing.decode_steps));
  timing.waiting = static_cast<double>(after.wait_ns - before.wait_ns) * per_step;
  timing.host = static_cast<double>(after.step_ns - before.step_ns) * per_step - timing.waiting;
  return timing;
}

model::ModelSpec read_spec(const std::string& directory, const rl::Fp8Choice& fp8) {
  const io::HfFolder folder = io::HfFolder::open_without_weights(directory);
  model::ModelSpec spec = model::read_model_spec(folder.config(), directory);
  rl::choose_fp8(spec, fp8, folder.config(), directory);
  return spec;
}

// As an engine holds them: encoded parameters without their plain form.
std::vector<model::ParameterInfo> list_engine_parameters(const model::ModelSpec& spec) {
  std::vector<model::ParameterInfo> infos = model::list_parameters(spec);
  for (model::ParameterInfo& info : infos) info.has_plain = !info.encoding;
  return infos;
}

// Writes FP8 values of normally distributed weights. One scale serves all blocks.
void fill_encoded_weights(model::ParameterStore& store) {
  constexpr int64_t kChunk = int64_t{1} << 24;
  constexpr float kDeviation = 0.02f, kLargest = 4.5f * kDeviation;
  constexpr float kScale = kLargest / tensor::kF8E4M3Max;
  std::vector<uint8_t> values(kChunk);
  PhiloxStream stream(7, 1);
  for (uint8_t& value : values)
    value = tensor::f32_to_f8_e4m3(static_cast<float>(stream.next_normal()) * kDeviation / kScale);
  const std::vector<float> scales(kChunk, kScale);
  for (const model::ParameterInfo& info : store.derived()) {
    const void* from = info.dtype == tensor::DType::kF8E4M3
                           ? static_cast<const void*>(values.data())
                           : static_cast<const void*>(scales.data());
    for (int64_t begin = 0; begin < info.num_elements(); begin += kChunk)
      store.write_bytes(info, begin, from, std::min(kChunk, info.num_elements() - begin));
  }
}

struct BenchModel {
  model::ModelSpec spec;
  model::ParameterStore store;
  BenchModel(const std::string& directory, const rl::Fp8Choice& fp8)
      : spec(read_spec(directory, fp8)), store(list_engine_parameters(spec), kDevice, false) {
    // All weights are drawn from one range, as in the vLLM run of the comparison.
    model::init_random_weights(store, spec, 1);
    fill_encoded_weights(store);
  }
};

// Warms up the engine first, so that its decode steps are recorded as graphs before the timed run.
Timing run_warm(rollout::Engine& engine, const model::ModelSpec& spec, int64_t count,
                int64_t prompt, int64_t response) {
  run_requests(engine, spec, count, 32, 40, 99);
  engine.reset_stats();
  return run_requests(engine, spec, count, prompt, response, 5);
}

rollout::EngineOptions engine_options(int64_t running, int64_t prompt, int64_t response,
                                      int64_t drafts) {
  rollout::EngineOptions options;
  options.max_running_requests = running * (drafts + 1);
  options.chunked_prefill_size = 8192;
  options.max_total_tokens = running * (prompt + response + drafts + options.page_tokens);
  options.max_sequence_tokens = prompt + response;
  options.enable_prefix_cache = false;
  options.num_draft_tokens = drafts;
  options.drafts_by_mtp = drafts > 0;
  options.gates_drafts = false;
  return options;
}

void time_speculation(const BenchModel& m, int64_t drafts, int64_t count, int64_t prompt,
                      int64_t response) {
  const model::Decoder transformer(m.spec, kDevice, prompt + response);
  const model::ModelParameters weights = model::bind_weights(m.store, m.spec);
  rollout::Engine engine(transformer, weights, kDevice,
                         engine_options(count, prompt, response, drafts), {}, 0);
  const Timing t = run_warm(engine, m.spec, count, prompt, response);
  const rollout::EngineStats& stats = engine.stats();
  fmt::print(
      "speculate {} x {} in / {} out, {} drafts: prefill {:.2f} s, decode {:.2f} s in {} steps of "
      "{:.3f} ms; of {} drafts {} were accepted; per step {:.1f} us of work on the host, {:.1f} us "
      "of waiting for the device\n",
      count, prompt, response, drafts, t.prefill, t.decode, t.decode_steps,
      t.decode * 1e3 / static_cast<double>(std::max<int64_t>(1, t.decode_steps)),
      stats.draft_tokens, stats.accepted_tokens, t.host * 1e6, t.waiting * 1e6);
  std::fflush(stdout);
}

void time_generation(const BenchModel& m, double bandwidth, int64_t count, int64_t running,
                     int64_t prompt, int64_t response) {
  const model::Decoder transformer(m.spec, kDevice, prompt + response);
  const model::ModelParameters weights = model::bind_weights(m.store, m.spec);
  const rollout::EngineOptions options = engine_options(running, prompt, response, 0);
  rollout::Engine engine(transformer, weights, kDevice, options, {}, 0);
  const Timing t = run_warm(engine, m.spec, count, prompt, response);
  if (running < count) {
    fmt::print(
        "generate {} x {} in / {} out, {} at a time: {:.2f} s, {:.0f} output tokens/s, {} steps\n",
        count, prompt, response, running, t.prefill + t.decode,
        static_cast<double>(count * response) / (t.prefill + t.decode), t.steps);
    std::fflush(stdout);
    return;
  }
  // Memory traffic of a decode step: the weights once (except an untied embedding, where a step
  // reads only a few rows), and all cached keys and values.
  const auto n = static_cast<double>(count);
  double weight_bytes = m.spec.tied_embeddings
                            ? 0
                            : -2.0 * static_cast<double>(m.spec.vocab_size * m.spec.hidden_size);
  for (const model::ParameterInfo& info : m.store.infos())
    if (info.has_plain) weight_bytes += 2.0 * static_cast<double>(info.num_elements());
  for (const model::ParameterInfo& info : m.store.derived())
    weight_bytes += static_cast<double>(m.store.weight(info.id).size_bytes());
  double kv_bytes_per_token = 0;
  const auto add = [&](const auto& block) {
    kv_bytes_per_token += static_cast<double>(model::page_bytes(block, tensor::DType::kBF16, 1));
  };
  for (const model::LayerSpec& layer : m.spec.layers) std::visit(add, layer.attention);
  double bytes = 0;
  for (int64_t i = 1; i < response; ++i)
    bytes += weight_bytes + n * static_cast<double>(prompt + i) * kv_bytes_per_token;
  const double total = t.prefill + t.decode, out = n * static_cast<double>(response);
  fmt::print(
      "generate {} x {} in / {} out: {:.2f} s, {:.0f} output tokens/s; prefill {:.2f} s, decode "
      "{:.2f} s in {} steps of {:.3f} ms; weights and cache at {:.0f} GB/s, {:.1f} % of the copy "
      "rate of {:.0f}; per step {:.1f} us of work on the host, {:.1f} us of waiting for the "
      "device\n",
      count, prompt, response, total, out / total, t.prefill, t.decode, t.steps,
      t.decode * 1e3 / static_cast<double>(response - 1), bytes / t.decode * 1e-9,
      100 * bytes / t.decode / bandwidth, bandwidth * 1e-9, t.host * 1e6, t.waiting * 1e6);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const auto take = [&](const char* word) {
    if (argc < 2 || std::string(argv[1]) != word) return false;
    --argc, ++argv;
    return true;
  };
  const bool products = take("fp8"), cache = take("fp8-cache");
  const rl::Fp8Choice fp8 = fp8_choice(products, cache);
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  if (mode == "train" && argc >= 4 && argc <= 8) {
    train::OptimizerOptions optimizer;
    optimizer.optimizer_cpu_offload = argc > 6 && std::string(argv[6]) == "host";
    if (argc > 7) optimizer.state_dtype = argv[7];
    time_training(argv[2], number(3), argc > 4 ? argv[4] : "auto",
                  argc > 5 ? std::atof(argv[5]) : 0, optimizer, fp8);
  } else if (mode == "generate" && argc >= 6 && argc % 3 == 0) {
    const BenchModel m(argv[2], fp8);
    const double bandwidth = copy_bandwidth();
    for (int i = 3; i < argc; i += 3) {
      const std::string counts = argv[i];
      const size_t slash = counts.find('/');
      const int64_t running =
          slash == std::string::npos ? number(i) : std::atoll(counts.c_str() + slash + 1);
      time_generation(m, bandwidth, number(i), running, number(i + 1), number(i + 2));
    }
  } else if (mode == "speculate" && argc >= 7 && argc % 3 == 1) {
    const BenchModel m(argv[2], fp8);
    for (int i = 4; i < argc; i += 3)
      time_speculation(m, number(3), number(i), number(i + 1), number(i + 2));
  } else {
    fmt::print(
        stderr,
        "usage: model_bench [fp8] [fp8-cache] train DIR TOKENS [auto|full|none [GIB [device|host "
        "[float32|bfloat16]]]] | generate DIR REQUESTS[/RUNNING] IN OUT ... | speculate DIR "
        "DRAFTS REQUESTS IN OUT ...\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace slimexx

int main(int argc, char** argv) {
  try {
    return slimexx::run(argc, argv);
  } catch (const slimexx::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return slimexx::exit_status(error.code());
  }
}
