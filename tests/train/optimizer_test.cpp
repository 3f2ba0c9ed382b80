#include "slimexx/train/optimizer.h"
#include "slimexx/model/boxes.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cpu_context.h"
#include "slimexx/base/json.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/ops/elementwise.h"
#include "test_paths.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

constexpr const char* kGoldenModel = "llama3_scaled_tied_biased";

// Must equal the values in scripts/golden/make_adamw_golden.py.
constexpr double kLearningRates[] = {0.01, 0.02, 0.005, 0.01};
constexpr OptimizerOptions golden_options(double clip_grad) {
  OptimizerOptions o;
  o.weight_decay = 0.1;
  o.adam_beta1 = 0.9, o.adam_beta2 = 0.98, o.adam_eps = 1e-8;
  o.clip_grad = clip_grad;
  return o;
}
float golden_gradient(const std::string& name, int64_t i, int64_t k) {
  int64_t bytes = 0;
  for (const char c : name) bytes += static_cast<unsigned char>(c);
  const int64_t n = (7919 * i + 104729 * k + 13 * bytes) % 2001 - 1000;
  return static_cast<float>(static_cast<double>(n) / 1000) * (k == 2 ? 1e-4f : 1.0f);
}

void fill_gradients(model::ParameterStore& store, int64_t step) {
  for (const auto& info : store.infos()) {
    float* gradient = store.gradient(info.id).f32();
    for (const auto& run : model::list_runs(info)) {
      for (int64_t i = 0; i < run.size; ++i)
        gradient[run.in_parameter + i] =
            golden_gradient(info.parts[run.part].name, run.on_disk + i, step);
    }
  }
}

struct State {
  std::vector<float> weights, master, exp_avg, exp_avg_sq;
};

// Parts from the end to the start. The first is so small that most ranks own nothing of it.
std::vector<GradientPart> uneven_parts(int64_t num_elements) {
  std::vector<GradientPart> parts;
  int64_t length = 16;
  for (int64_t end = num_elements; end > 0; length += 16 * 37) {
    parts.push_back({{std::max<int64_t>(0, end - length), end}});
    end = parts.back().range.begin;
  }
  return parts;
}

enum class Cut { kWhole, kParts };
enum class StateIn { kDevice, kHost };

// Steps with the golden gradients on the last rank and zero gradients on the others.
State run_steps(int num_ranks, int num_steps, double clip_grad, const char* state_dtype = "float32",
                Cut cut = Cut::kWhole, StateIn place = StateIn::kDevice) {
  State state;
  dist::run_thread_ranks(num_ranks, [&](dist::Collective& communicator) {
    TinyPolicy policy(kGoldenModel);
    OptimizerOptions options = golden_options(clip_grad);
    options.state_dtype = state_dtype;
    options.optimizer_cpu_offload = place == StateIn::kHost;
    std::vector<GradientPart> parts;
    if (cut == Cut::kParts) parts = uneven_parts(policy.store.num_elements());
    ShardedAdamW optimizer(policy.store, communicator, dist::data_parallel_groups(communicator),
                           options, {}, std::move(parts));
    for (int k = 0; k < num_steps; ++k) {
      ops::fill_zero(cpu_context(), flat_gradients(policy.store));
      if (communicator.rank() == num_ranks - 1) fill_gradients(policy.store, k);
      const double norm = optimizer.reduce_gradients(cpu_context());
      optimizer.step(cpu_context(), kLearningRates[k], norm);
    }
    const OwnedGroup& group = optimizer.groups()[0];
    State own{floats_of(flat_weights(policy.store)),
              gather_state(communicator, group, group.master),
              gather_state(communicator, group, group.exp_avg),
              gather_state(communicator, group, group.exp_avg_sq)};
    if (communicator.rank() == num_ranks - 1) state = std::move(own);
  });
  return state;
}

TEST(ShardedAdamW, AgreesWithTorch) {
  std::ifstream file(test_data_path("train/optimizer_test.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const Json norms = parse_json(line, "golden")["gradient_norms"];
  std::map<std::string, Json> golden;
  while (std::getline(file, line)) {
    const Json row = parse_json(line, "golden");
    golden[row["tensor"].get<std::string>()] = row;
  }
  ASSERT_GT(golden.size(), 20u);

  dist::Collective communicator;
  TinyPolicy policy(kGoldenModel);
  ShardedAdamW optimizer(policy.store, communicator, dist::data_parallel_groups(communicator),
                         golden_options(1.0), {});
  int decayed = 0, exempt = 0;
  for (const auto& info : policy.store.infos()) (info.decayed ? decayed : exempt) += 1;
  EXPECT_GT(decayed, 4);
  EXPECT_GT(exempt, 4);
  for (size_t k = 0; k < norms.size(); ++k) {
    fill_gradients(policy.store, static_cast<int64_t>(k));
    const double norm = optimizer.reduce_gradients(cpu_context());
    EXPECT_NEAR(norm, norms[k].get<double>(), 1e-6 * norm) << "step " << k;
    optimizer.step(cpu_context(), kLearningRates[k], norm);
    size_t compared = 0;
    for (const auto& info : policy.store.infos()) {
      const float* weight = policy.store.weight(info.id).f32();
      for (const auto& run : model::list_runs(info)) {
        const std::string& name = info.parts[run.part].name;
        const Json& row = golden.at(name);
        const float* values = weight + run.in_parameter;
        double sum = 0;
        for (int64_t i = 0; i < run.size; ++i) sum += double{values[i]} * values[i];
        const auto expected = row["norm"][k].get<double>();
        EXPECT_NEAR(std::sqrt(sum), expected, 2e-6 * expected) << name << ", step " << k;
        for (size_t i = 0; i < row["first"][k].size(); ++i) {
          EXPECT_NEAR(values[i], row["first"][k][i].get<double>(), 5e-7)
              << name << "[" << i << "], step " << k;
        }
        ++compared;
      }
    }
    EXPECT_EQ(compared, golden.size());
  }
}

TEST(ShardedAdamW, ShardsGiveTheSameBits) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    const State expected = run_steps(1, 4, 0, dtype);
    for (const auto& [ranks, cut] : {std::pair{2, Cut::kWhole},
                                     {3, Cut::kWhole},
                                     {4, Cut::kWhole},
                                     {1, Cut::kParts},
                                     {2, Cut::kParts},
                                     {3, Cut::kParts},
                                     {4, Cut::kParts}}) {
      const State actual = run_steps(ranks, 4, 0, dtype, cut);
      const std::string what = std::string(dtype) + ", " + std::to_string(ranks) + " ranks" +
                               (cut == Cut::kParts ? ", by parts" : "");
      EXPECT_EQ(first_difference(actual.weights, expected.weights), "") << what;
      EXPECT_EQ(first_difference(actual.master, expected.master), "") << what;
      EXPECT_EQ(first_difference(actual.exp_avg, expected.exp_avg), "") << what;
      EXPECT_EQ(first_difference(actual.exp_avg_sq, expected.exp_avg_sq), "") << what;
    }
  }
  const State expected = run_steps(1, 4, 0);
  EXPECT_EQ(first_difference(expected.weights, expected.master), "");
  // With clipping, owners sum the norm, so its last bits depend on the number of ranks. On one
  // rank, the cut into parts changes no bit.
  const State clipped = run_steps(1, 4, 1.0),
              clipped_by_parts = run_steps(1, 4, 1.0, "float32", Cut::kParts);
  EXPECT_EQ(first_difference(clipped_by_parts.weights, clipped.weights), "");
  for (const Cut cut : {Cut::kWhole, Cut::kParts}) {
    const State of_three = run_steps(3, 4, 1.0, "float32", cut);
    EXPECT_LT(relative_distance(of_three.weights, clipped.weights), 1e-7);
    EXPECT_EQ(first_difference(run_steps(3, 4, 1.0, "float32", cut).weights, of_three.weights), "");
  }
  EXPECT_NE(first_difference(clipped.weights, expected.weights), "");
}

TEST(ShardedAdamW, StateInHostMemoryGivesTheSameBits) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const int ranks : {1, 3}) {
      const State expected = run_steps(ranks, 4, 1.0, dtype, Cut::kParts);
      const State actual = run_steps(ranks, 4, 1.0, dtype, Cut::kParts, StateIn::kHost);
      const std::string what = std::string(dtype) + ", " + std::to_string(ranks) + " ranks";
      EXPECT_EQ(first_difference(actual.weights, expected.weights), "") << what;
      EXPECT_EQ(first_difference(actual.master, expected.master), "") << what;
      EXPECT_EQ(first_difference(actual.exp_avg, expected.exp_avg), "") << what;
      EXPECT_EQ(first_difference(actual.exp_avg_sq, expected.exp_avg_sq), "") << what;
    }
  }
}

// After a reset of the moments, an optimizer behaves like a new one made from the same weights.
TEST(ShardedAdamW, ResetMomentsBeginAnew) {
  for (const bool in_host_memory : {false, true}) {
    dist::Collective communicator;
    TinyPolicy used(kGoldenModel), fresh(kGoldenModel);
    OptimizerOptions options = golden_options(1.0);
    options.optimizer_cpu_offload = in_host_memory;
    const auto make = [&](TinyPolicy& policy) {
      return ShardedAdamW(policy.store, communicator, dist::groups_of_one(), options, {});
    };
    const auto step = [](ShardedAdamW& optimizer, TinyPolicy& policy, int64_t k) {
      fill_gradients(policy.store, k);
      optimizer.step(cpu_context(), 0.01, optimizer.reduce_gradients(cpu_context()));
    };
    ShardedAdamW optimizer = make(used);
    for (const int64_t k : {0, 1}) step(optimizer, used, k);
    ops::copy(cpu_context(), flat_weights(fresh.store), flat_weights(used.store));
    ShardedAdamW other = make(fresh);
    optimizer.reset_moments();
    EXPECT_EQ(optimizer.num_steps(), 0);
    step(optimizer, used, 3);
    step(other, fresh, 3);
    EXPECT_EQ(
        first_difference(floats_of(flat_weights(used.store)), floats_of(flat_weights(fresh.store))),
        "")
        << (in_host_memory ? "in host memory" : "on the device");
    EXPECT_EQ(first_difference(floats_of(optimizer.groups()[0].exp_avg_sq),
                               floats_of(other.groups()[0].exp_avg_sq)),
              "");
  }
}

// The first step uses moments that are not rounded yet, so master weights agree. Later steps start
// from moments rounded to 8 bits, so they differ by at most that share of the distance moved.
TEST(ShardedAdamW, Bf16MomentsFollowFloat32) {
  const State first = run_steps(1, 1, 0), first_bf16 = run_steps(1, 1, 0, "bfloat16");
  EXPECT_EQ(first_difference(first_bf16.master, first.master), "");
  for (size_t i = 0; i < first.exp_avg.size(); ++i) {
    const auto rounded = [](float x) { return tensor::bf16_to_f32(tensor::f32_to_bf16(x)); };
    ASSERT_EQ(first_bf16.exp_avg[i], rounded(first.exp_avg[i])) << i;
    ASSERT_EQ(first_bf16.exp_avg_sq[i], rounded(first.exp_avg_sq[i])) << i;
  }
  const State wide = run_steps(1, 4, 0), narrow = run_steps(1, 4, 0, "bfloat16");
  EXPECT_NE(first_difference(narrow.master, wide.master), "");
  const State start = run_steps(1, 0, 0);
  std::vector<float> went(wide.master.size()), went_narrow(wide.master.size());
  for (size_t i = 0; i < went.size(); ++i) {
    went[i] = wide.master[i] - start.master[i];
    went_narrow[i] = narrow.master[i] - start.master[i];
  }
  EXPECT_LT(relative_distance(went_narrow, went), 0x1p-8);
}

TEST(ShardedAdamW, Bf16MomentsTakeHalfTheBytes) {
  dist::Collective communicator;
  TinyPolicy policy(kGoldenModel);
  const auto section = [&](int64_t element_bytes) {
    return (policy.store.num_elements() * element_bytes + 255) / 256 * 256;
  };
  for (const auto& [dtype, moment_bytes] : {std::pair{"float32", 4}, {"bfloat16", 2}}) {
    OptimizerOptions options = golden_options(1.0);
    options.state_dtype = dtype;
    const int64_t before = tensor::allocation_counters({}).live_bytes;
    const ShardedAdamW optimizer(policy.store, communicator,
                                 dist::data_parallel_groups(communicator), options, {});
    EXPECT_EQ(tensor::allocation_counters({}).live_bytes - before,
              section(4) + 2 * section(moment_bytes))
        << dtype;
    EXPECT_EQ(optimizer.groups()[0].exp_avg.size_bytes(),
              policy.store.num_elements() * moment_bytes);
    EXPECT_EQ(optimizer.groups()[0].exp_avg_sq.size_bytes(),
              policy.store.num_elements() * moment_bytes);
  }
}

TEST(ShardedAdamW, GradientsAddOverRanksAndAreClipped) {
  for (const int ranks : {1, 3}) {
    dist::run_thread_ranks(ranks, [&](dist::Collective& communicator) {
      TinyPolicy policy(kGoldenModel);
      for (const double clip : {0.0, 0.5, 1e9}) {
        ShardedAdamW optimizer(policy.store, communicator, dist::data_parallel_groups(communicator),
                               golden_options(clip), {}, uneven_parts(policy.store.num_elements()));
        // Rank r brings (r + 1) * 2^-4 everywhere: exact sums. Gaps stay zero.
        ops::fill_zero(cpu_context(), flat_gradients(policy.store));
        int64_t n = 0;
        for (const auto& info : policy.store.infos()) {
          const tensor::Tensor g = policy.store.gradient(info.id);
          n += g.num_elements();
          std::fill_n(g.f32(), g.num_elements(), static_cast<float>(communicator.rank() + 1) / 16);
        }
        const double each = ranks * (ranks + 1) / 2 / 16.0;
        const double norm = optimizer.reduce_gradients(cpu_context());
        EXPECT_NEAR(norm, each * std::sqrt(static_cast<double>(n)), 1e-9 * norm);
        optimizer.step(cpu_context(), 0.0, norm);
        // First moment after one step: (1 - beta1) * scale * gradient.
        const double scale = clip == 0.5 ? clip / (norm + 1e-6) : 1;
        const OwnedGroup& group = optimizer.groups()[0];
        const auto exp_avg = gather_state(communicator, group, group.exp_avg);
        for (const auto& info : policy.store.infos()) {
          for (int64_t i = 0; i < info.num_elements(); ++i) {
            ASSERT_NEAR(exp_avg[static_cast<size_t>(info.offset + i)], 0.1 * scale * each,
                        1e-6 * scale * each)
                << info.name << "[" << i << "] at clip_grad " << clip;
          }
        }
      }
    });
  }
}

TEST(ShardedAdamW, NormSeesNanOfEveryRank) {
  dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
    TinyPolicy policy(kGoldenModel);
    ShardedAdamW optimizer(policy.store, communicator, dist::data_parallel_groups(communicator),
                           golden_options(1.0), {}, uneven_parts(policy.store.num_elements()));
    for (int culprit = 0; culprit < 3; ++culprit) {
      fill_gradients(policy.store, 0);
      if (communicator.rank() == culprit) {
        const tensor::Tensor g = policy.store.gradient(policy.store.infos().back().id);
        g.f32()[g.num_elements() - 1] = std::numeric_limits<float>::quiet_NaN();
      }
      EXPECT_TRUE(std::isnan(optimizer.reduce_gradients(cpu_context()))) << "rank " << culprit;
    }
  });
}

// Zero gradients leave only decay: matrices shrink by lr * decay per step, vectors keep their bits.
TEST(ShardedAdamW, DecayExemptsVectors) {
  dist::Collective communicator;
  TinyPolicy policy(kGoldenModel), before(kGoldenModel);
  ShardedAdamW optimizer(policy.store, communicator, dist::data_parallel_groups(communicator),
                         golden_options(1.0), {});
  ops::fill_zero(cpu_context(), flat_gradients(policy.store));
  optimizer.step(cpu_context(), 0.5, optimizer.reduce_gradients(cpu_context()));
  for (const auto& info : policy.store.infos()) {
    const auto now = floats_of(policy.store.weight(info.id));
    const auto then = floats_of(before.store.weight(info.id));
    EXPECT_EQ(info.decayed, info.shape.size() > 1) << info.name;
    for (size_t i = 0; i < now.size(); ++i) {
      ASSERT_FLOAT_EQ(now[i], info.decayed ? then[i] * 0.95f : then[i])
          << info.name << "[" << i << "]";
    }
  }
}

// No gradient, no moments, no decay: not a byte of a frozen parameter changes.
TEST(ShardedAdamW, FrozenParametersKeepTheirBytes) {
  const TinyPolicy policy;
  std::vector<model::ParameterInfo> infos = policy.store.infos();
  for (auto& info : infos) info.trainable = info.id % 3 != 0;
  model::ParameterStore store(infos, {}, true);
  ASSERT_EQ(store.groups().size(), 2u);
  for (const auto& info : store.infos())
    store.write_weights(info, 0, policy.store.weight(info.id).f32(), info.num_elements());
  dist::Collective one_rank;
  OptimizerOptions options;
  options.weight_decay = 0.1;
  ShardedAdamW optimizer(store, one_rank, dist::data_parallel_groups(one_rank), options, {});
  for (int64_t step = 0; step < 3; ++step) {
    for (const auto& info : store.infos()) {
      const tensor::Tensor gradient = store.gradient(info.id);
      EXPECT_EQ(gradient.defined(), info.trainable) << info.name;
      if (info.trainable) std::fill_n(gradient.f32(), gradient.num_elements(), 0.5f);
    }
    optimizer.step(cpu_context(), 0.01, optimizer.reduce_gradients(cpu_context()));
  }
  for (const auto& info : store.infos()) {
    const auto now = floats_of(store.weight(info.id)),
               then = floats_of(policy.store.weight(info.id));
    EXPECT_EQ(first_difference(now, then) == "", !info.trainable) << info.name;
  }
}

}  // namespace
}  // namespace slimexx::train
