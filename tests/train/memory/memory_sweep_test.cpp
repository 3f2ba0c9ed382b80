// Compares activation plans with the memory that microbatches use, for random models, grids, limits
// and packings. SLX_MEMORY_CASES sets the number, SLX_MEMORY_SEED the seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "model/random_model.h"
#include "slimexx/base/error.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/families.h"
#include "slimexx/tensor/planning.h"
#include "slimexx/train/packing.h"
#include "test_paths.h"
#include "train/grids/grid_run.h"
#include "train/memory/largest_microbatches.h"
#include "train/memory/planned_rank.h"

namespace slimexx::train {
namespace {

int64_t read_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

struct SweepCase {
  model::ModelSpec spec;
  int world_size = 1;
  dist::GridSizes sizes = {};
  model::PipelineSplit split = {};
  tensor::Device device = {};
  TrainOptions options = {};
  PackedLimits limits = {};
  std::string text() const {
    return fmt::format(
        "{}{} on {}: {} ranks, tp {} cp {} pp {}{} ep {} etp {}; logits of {} rows, {} tokens, "
        "{} at the longest, {} samples{}, {} {}",
        spec.family, options.enable_mtp_training ? " with MTP" : "", tensor::to_string(device),
        world_size, sizes.tp, sizes.cp, sizes.pp,
        split.layers_per_virtual_stage ? " interleaved" : "", sizes.ep, sizes.etp,
        limits.logit_rows, limits.num_tokens, limits.longest, limits.num_samples,
        options.use_dynamic_batch_size ? "" : " of a fixed number", options.recompute_granularity,
        options.pipeline_schedule);
  }
};

// A published model cut to a few layers, as a realistic size for GPU plans.
model::ModelSpec published_spec(const std::string& name, int64_t num_layers) {
  const std::string folder = test_data_path("../configs/models/") + name;
  model::ModelSpec spec =
      model::read_model_spec(io::HfFolder::open_without_weights(folder).config(), folder);
  spec.layers.resize(static_cast<size_t>(num_layers));
  spec.max_positions = std::min<int64_t>(spec.max_positions, 32768);
  return spec;
}

class Draws {
 public:
  // `runs`: draws only cases small enough to train on CPU threads.
  explicit Draws(uint64_t seed, bool runs = false) : random_(seed, 11), runs_(runs) {}
  PhiloxStream& random() { return random_; }

  SweepCase draw_case() {
    for (;;) {
      SweepCase c = draw_any();
      if (c.world_size % (c.sizes.tp * c.sizes.cp * c.sizes.pp) == 0 &&
          c.world_size % (c.sizes.ep * c.sizes.etp * c.sizes.pp) == 0)
        return c;
    }
  }

 private:
  template <class T>
  T draw(const std::vector<T>& of) {
    return of[random_.next_below(of.size())];
  }
  int64_t between(int64_t first, int64_t last) {
    return first +
           static_cast<int64_t>(random_.next_below(static_cast<uint64_t>(last - first + 1)));
  }

  void draw_model(SweepCase& c) {
    const bool on_gpu = c.device.type == tensor::DeviceType::kCuda;
    if (on_gpu) {
      c.spec = published_spec(draw<std::string>({"GLM-4.5", "GLM-4.7", "GLM-4.7-Flash", "GLM-5.2",
                                                 "GLM-Z1-9B-0414", "Qwen3-4B"}),
                              6);
    } else {
      const auto family = draw(model::all_families());
      c.spec = model::random_spec(family,
                                  {.vocab_size = runs_ ? 320 : draw<int64_t>({64, 320, 2048}),
                                   .hidden_size = draw<int64_t>({32, 128}),
                                   .intermediate_size = draw<int64_t>({48, 208}),
                                   .head_dim = 64,
                                   .max_positions = 4096,
                                   .num_layers = 6,
                                   .num_heads = 4},
                                  0.1);
    }
    const bool has_experts = std::ranges::any_of(c.spec.layers, [](const model::LayerSpec& layer) {
      return std::holds_alternative<model::MoeMlpSpec>(layer.mlp);
    });
    c.sizes = {
        .tp = draw<int>({1, 1, 2}), .cp = draw<int>({1, 1, 2, 3}), .pp = draw<int>({1, 1, 2, 3})};
    if (c.spec.family == "glm_moe_dsa") c.sizes.pp = std::min(c.sizes.pp, 2);
    if (has_experts) {
      c.sizes.ep = draw<int>({1, 2, 4});
      c.sizes.etp = draw<int>({1, 1, 2});
    }
    const int64_t num_mtp = has_experts ? draw<int64_t>({0, 1, 2}) : 0;
    c.spec.mtp.clear();
    for (int64_t i = 0; i < num_mtp; ++i) {
      model::LayerSpec layer = c.spec.layers.back();
      layer.attention = c.spec.layers.front().attention;
      c.spec.mtp.push_back({.layer = layer, .is_trained = true});
    }
    c.options.enable_mtp_training = num_mtp > 0;
    c.options.mtp_num_layers = num_mtp;
  }

  SweepCase draw_any() {
    SweepCase c{.spec = {}, .world_size = draw<int>({1, 2, 3, 4, 6, 8, 12})};
    if (runs_) c.world_size = draw<int>({1, 2, 3, 4});
    if (!runs_ && draw<int>({0, 1}) == 1) c.device = {tensor::DeviceType::kCuda, 0};
    draw_model(c);
    const bool on_gpu = c.device.type == tensor::DeviceType::kCuda;
    TrainOptions& o = c.options;
    o.max_tokens_per_gpu = on_gpu ? between(256, 16384) : between(20, runs_ ? 80 : 400);
    if (c.sizes.pp > 1) o.pipeline_schedule = draw<std::string>({"1f1b", "zb_h1"});
    if (c.sizes.pp > 1 && o.pipeline_schedule == "1f1b" && c.spec.family != "glm_moe_dsa" &&
        draw<int>({0, 1}) == 1)
      c.split.layers_per_virtual_stage = 6 / c.sizes.pp == 3 ? 1 : draw<int64_t>({1, 1});
    o.recompute_granularity = draw<std::string>({"auto", "auto", "none", "full"});
    PackedLimits& l = c.limits;
    l.num_tokens = o.max_tokens_per_gpu * c.sizes.cp;
    l.longest = draw<int64_t>({2, between(2, l.num_tokens), between(2, l.num_tokens), l.num_tokens,
                               l.num_tokens * 5 / 4});
    l.num_samples = draw<int64_t>({1, between(1, 16), between(1, 256), 100000});
    o.use_dynamic_batch_size = draw<int>({0, 1, 1, 1}) == 1;
    if (!o.use_dynamic_batch_size) {
      o.micro_batch_size = std::min<int64_t>(between(1, 8), l.num_samples);
      l.longest = std::min<int64_t>(l.longest, on_gpu ? 4096 : 200);
      l.num_samples = o.micro_batch_size;
      l.num_tokens = o.micro_batch_size * l.longest;
    } else {
      l.num_tokens = std::max(l.num_tokens, l.longest);
    }
    c.spec.max_positions = std::max(c.spec.max_positions, l.longest);
    const int64_t vocabulary = c.spec.vocab_size / c.sizes.tp;
    l.logit_rows = draw<int64_t>({1, between(1, l.num_tokens), between(1, l.num_tokens),
                                  between(l.num_tokens / 2, l.num_tokens), 2 * l.num_tokens});
    o.max_logits_gib =
        (static_cast<double>(l.logit_rows * vocabulary * 4) + 2) / static_cast<double>(1 << 30);
    l.logit_rows *= c.sizes.cp;
    return c;
  }

  PhiloxStream random_;
  bool runs_;
};

struct Figures {
  int64_t cases = 0, refused = 0, microbatches = 0, over = 0, exact = 0;
  double worst_over = 0;
  std::vector<double> gaps;
  void compare(const SweepCase& c, const char* what, int64_t taken, int64_t planned) {
    ++microbatches;
    if (taken <= planned) return;
    ++over;
    worst_over = std::max(worst_over, static_cast<double>(taken) / static_cast<double>(planned));
    if (over <= read_number("SLX_MEMORY_SHOWN", 5))
      ADD_FAILURE() << what << " take " << taken << " bytes, " << planned
                    << " were planned: " << c.text();
  }
  void report() {
    std::sort(gaps.begin(), gaps.end());
    const auto at = [&](double share) {
      return gaps.empty()
                 ? 0
                 : 100 * gaps[static_cast<size_t>(share * static_cast<double>(gaps.size() - 1))];
    };
    std::printf(
        "%lld cases (%lld refused), %lld comparisons, %lld beyond the plan (worst %.3f x); plan "
        "above the largest found by %.2f %% in the median, %.2f at 90, %.2f at 99, %.2f at most\n",
        static_cast<long long>(cases), static_cast<long long>(refused),
        static_cast<long long>(microbatches), static_cast<long long>(over), worst_over, at(0.5),
        at(0.9), at(0.99), at(1));
  }
};

// The plan's largest microbatches that packing could really produce.
std::vector<std::vector<Sample>> legal_among_largest(const SweepCase& c) {
  const PackedLimits& l = c.limits;
  auto all = list_largest_microbatches({.num_tokens = l.num_tokens,
                                        .num_samples = l.num_samples,
                                        .longest = l.longest,
                                        .kept_logit_rows = l.logit_rows / c.sizes.cp,
                                        .num_trained_mtp = c.options.num_trained_mtp(),
                                        .cp_size = c.sizes.cp});
  std::erase_if(all, [&](const std::vector<Sample>& samples) {
    int64_t tokens = 0, longest = 0;
    for (const Sample& s : samples) {
      tokens += std::ssize(s.tokens);
      longest = std::max<int64_t>(longest, std::ssize(s.tokens));
    }
    return tokens > std::max(l.num_tokens, l.longest) || longest > l.longest ||
           std::ssize(samples) > l.num_samples;
  });
  return all;
}

constexpr int64_t kTables = 8192;  // bytes that a plan adds to its largest microbatch

void sweep(const SweepCase& c, PhiloxStream& random, Figures& figures) {
  const tensor::PlanningScope scope;
  const dist::GridShape shape(c.world_size, c.sizes);
  const int per_stage = c.world_size / c.sizes.pp;
  const int stage = static_cast<int>(random.next_below(static_cast<uint64_t>(c.sizes.pp)));
  const int first = stage * per_stage;
  const int rank = first + static_cast<int>(random.next_below(static_cast<uint64_t>(per_stage)));
  const PlannedRank of_plan(c.spec, shape, first, c.device, c.options, c.split);
  const PlannedRank measured(c.spec, shape, rank, c.device, c.options, c.split);
  const ActivationBytes planned =
      of_plan.trainer().plans().plan_activations(c.limits.longest, c.limits.num_samples);
  const ActivationBytes own =
      measured.trainer().plans().plan_activations(c.limits.longest, c.limits.num_samples);
  if (c.options.recompute_granularity == "auto") {
    EXPECT_LE(planned.least, planned.most);
  } else {
    EXPECT_EQ(planned.least, planned.most);
  }
  const bool full = c.options.recompute_granularity == "full";
  const auto plan_most = [&](const std::vector<Sample>& microbatch) {
    return of_plan.trainer().plans().plan_microbatch(
        microbatch, {.level = full ? model::LayerKeep::kInputs : model::LayerKeep::kAll});
  };
  int64_t largest = 0;
  for (const auto& microbatch : legal_among_largest(c))
    largest = std::max(largest, plan_most(microbatch));
  for (int i = 0; i < read_number("SLX_MEMORY_TRIES", 30); ++i) {
    const auto microbatch = draw_microbatch(random, c.limits);
    const bool none = c.options.recompute_granularity == "none";
    for (const auto level : {model::LayerKeep::kInputs, model::LayerKeep::kAll}) {
      const bool least = level == model::LayerKeep::kInputs;
      if ((full && !least) || (none && least)) continue;
      const int64_t taken =
          measured.trainer().plans().plan_microbatch(microbatch, {.level = level});
      figures.compare(c, "(this rank's rows)",
                      measured.trainer().plans().plan_microbatch(microbatch, {.level = level},
                                                                 MeasuredRank::kOwn),
                      least ? planned.least : planned.most);
      figures.compare(c, least ? "layers that keep the least" : "layers that keep all", taken,
                      least ? planned.least : planned.most);
      figures.compare(c, least ? "(own) keep the least" : "(own) keep all", taken,
                      least ? own.least : own.most);
      if (!least || full) largest = std::max(largest, taken);
    }
  }
  if (c.sizes.cp == 1 && c.sizes.pp == 1) {
    ++figures.exact;
    EXPECT_LE(planned.most, largest + kTables) << c.text();
  }
  figures.gaps.push_back(1 - static_cast<double>(largest) / static_cast<double>(planned.most));
  if (figures.gaps.back() > 0.01 * static_cast<double>(read_number("SLX_MEMORY_GAP", 100)))
    std::printf("gap %.3f: %s\n", figures.gaps.back(), c.text().c_str());
}

TEST(MemorySweep, NoMicrobatchTakesMoreThanThePlan) {
  const int64_t seed = read_number("SLX_MEMORY_SEED", 1);
  Figures figures;
  for (int64_t i = 0; i < read_number("SLX_MEMORY_CASES", 60); ++i) {
    Draws draws(static_cast<uint64_t>(seed + i));
    const SweepCase c = draws.draw_case();
    try {
      sweep(c, draws.random(), figures);
      ++figures.cases;
    } catch (const Error& error) {
      ++figures.refused;
      if (read_number("SLX_MEMORY_REFUSALS", 0) > 0)
        std::printf("refused: %s: %s\n", c.text().c_str(), error.what());
    }
  }
  figures.report();
}

// Trains with ranks as threads in planned memory; arenas check that everything fits. The usage must
// equal what planning contexts measure for the same microbatches.
struct RealFigures {
  int64_t cases = 0, refused = 0, compared = 0, equal = 0;
};

void run_for_real(SweepCase c, PhiloxStream& random, RealFigures& figures) {
  PackedLimits limits = c.limits;
  limits.num_tokens *= 2;  // several microbatches
  limits.num_samples = std::min<int64_t>(limits.num_samples, 12);
  std::vector<int64_t> lengths = draw_lengths(random, limits);
  for (int64_t& length : lengths) length = std::min(length, c.limits.longest);
  const std::vector<Sample> samples =
      samples_of_lengths(lengths, static_cast<int64_t>(1 + random.next_below(20)));
  GridRun run{.random_of = c.spec,
              .world_size = c.world_size,
              .sizes = c.sizes,
              .split = c.split,
              .leaves = c.sizes.tp,
              .options = c.options,
              .num_steps = 2,
              .planned_share = 0.25 * static_cast<double>(random.next_below(5))};
  const auto bins =
      pack_microbatches(lengths, {.dynamic = c.options.use_dynamic_batch_size,
                                  .max_tokens = c.options.max_tokens_per_gpu * c.sizes.cp,
                                  .micro_batch_size = c.options.micro_batch_size});
  const bool full = c.options.recompute_granularity == "full";
  const auto level = full ? model::LayerKeep::kInputs : model::LayerKeep::kAll;
  std::mutex mutex;
  run.look_at = [&](const Trainer& trainer) {
    const std::lock_guard lock(mutex);
    EXPECT_LE(trainer.memory().used_bytes(), trainer.memory().capacity_bytes()) << c.text();
    if (c.options.recompute_granularity == "auto") return;
    int64_t measured = trainer.plans().plan_activations(2, 1).least;  // or what an update takes
    for (const auto& bin : bins) {
      std::vector<Sample> microbatch;
      for (const int64_t i : bin) microbatch.push_back(samples[static_cast<size_t>(i)]);
      measured = std::max(measured, trainer.plans().plan_microbatch(microbatch, {.level = level},
                                                                    MeasuredRank::kOwn));
    }
    EXPECT_LE(trainer.memory().used_bytes(), measured) << c.text();
    ++figures.compared;
    figures.equal += trainer.memory().used_bytes() == measured ? 1 : 0;
    if (c.world_size == 1) {
      EXPECT_EQ(trainer.memory().used_bytes(), measured) << c.text();
    }
  };
  run_on_grid(run, samples);
}

TEST(MemorySweep, StepsUseWhatIsMeasured) {
  const int64_t seed = read_number("SLX_MEMORY_SEED", 1);
  RealFigures figures;
  for (int64_t i = 0; i < read_number("SLX_MEMORY_RUNS", 12); ++i) {
    Draws draws(static_cast<uint64_t>(seed + i), true);
    const SweepCase c = draws.draw_case();
    if (read_number("SLX_MEMORY_REFUSALS", 0) > 0) std::printf("%s\n", c.text().c_str());
    try {
      run_for_real(c, draws.random(), figures);
      ++figures.cases;
    } catch (const Error& error) {
      ++figures.refused;
      EXPECT_NE(error.code(), ErrorCode::kEnvironment) << error.what() << c.text();
    }
  }
  std::printf("%lld runs (%lld refused); of %lld ranks %lld used just what was measured\n",
              static_cast<long long>(figures.cases), static_cast<long long>(figures.refused),
              static_cast<long long>(figures.compared), static_cast<long long>(figures.equal));
}

}  // namespace
}  // namespace slimexx::train
