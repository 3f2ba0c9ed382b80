// Tests optimizer and trainer on ranks that exchange device memory, one device per rank; started by
// mpirun. Exits with 77 if there are fewer devices than ranks.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "dist/local_size.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/world.h"
#include "train/grids/spied_exchange.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

using tensor::Tensor;

dist::World* world = nullptr;

tensor::Device own_device() { return {tensor::DeviceType::kCuda, world->local_rank()}; }

// Small sizes that the device kernels support. If untied, the head is a gradient part of its own.
model::ModelSpec small_spec(bool tied) {
  Json config = parse_json(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "attention_bias": false, "head_dim": 64, "hidden_act": "silu", "hidden_size": 256,
    "initializer_range": 0.02, "intermediate_size": 512, "max_position_embeddings": 512,
    "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "vocab_size": 1024})",
                           "test");
  config["tie_word_embeddings"] = tied;
  return model::read_model_spec(config, "test");
}

// Uses NCCL even for one rank.
std::unique_ptr<dist::Collective> make_exchange(tensor::Device device) {
  if (device.is_cpu()) return nullptr;
  return dist::make_device_collective(world->ranks(), device);
}

struct Policy {
  Policy(tensor::Device device, bool tied)
      : spec(small_spec(tied)), decoder(spec, device, 128), store(spec, device, true) {
    model::init_random_weights(store, spec, 5);
  }
  model::ModelSpec spec;
  model::Decoder decoder;
  model::ParameterStore store;
};

std::vector<float> download(const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.num_elements()));
  tensor::download(tensor::compute_stream(t.device()), values.data(), t);
  return values;
}

std::vector<float> weights_of(const model::ParameterStore& store) {
  std::vector<float> values;
  for (const auto& info : store.infos()) {
    const size_t at = values.size();
    values.resize(at + static_cast<size_t>(info.num_elements()));
    store.read_weights(info, 0, values.data() + at, info.num_elements());
  }
  return values;
}

std::vector<float> gradient_values(int rank, int64_t n, uint64_t step) {
  PhiloxStream random(1000 * step + static_cast<uint64_t>(rank), 2);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = 0.01f * static_cast<float>(random.next_normal());
  return values;
}

// Uneven parts, from the end to the start.
std::vector<GradientPart> uneven_parts(int64_t n) {
  std::vector<GradientPart> parts;
  int64_t length = 16 * 1000;
  for (int64_t end = n; end > 0; length += 16 * 777) {
    parts.push_back({{std::max<int64_t>(0, end - length), end}});
    end = parts.back().range.begin;
  }
  return parts;
}

// Gives both optimizers the same gradients, with or without an early start. Rank r starts 3 + r
// parts early.
struct Steps {
  std::vector<float> master, exp_avg, weights, reduced;
  std::vector<double> norms;
};

Steps run_steps(tensor::Device device, bool early) {
  dist::Collective& host = world->ranks();
  Policy policy(device, false);
  if (device.is_cpu()) {  // starts from the device's rounded weights
    for (const auto& info : policy.store.infos()) {
      float* w = policy.store.weight(info.id).f32();
      for (int64_t i = 0; i < info.num_elements(); ++i)
        w[i] = tensor::bf16_to_f32(tensor::f32_to_bf16(w[i]));
    }
  }
  OptimizerOptions options;
  options.weight_decay = 0.1;
  const int64_t n = policy.store.num_elements();
  const auto exchange = make_exchange(device);
  ShardedAdamW optimizer(policy.store, host,
                         dist::data_parallel_groups(exchange ? *exchange : host), options, device,
                         uneven_parts(n));
  tensor::Arena arena(device, int64_t{64} << 20, "test");
  const ops::Context ctx = ops::compute_context(arena);
  Steps result;
  for (uint64_t step = 0; step < 3; ++step) {
    const auto own = gradient_values(world->rank(), n, step);
    tensor::upload(ctx.stream, flat_gradients(policy.store), own.data());
    for (int64_t part = 0; early && part < 3 + world->rank(); ++part)
      optimizer.start_gradient_part(ctx, part);
    result.norms.push_back(optimizer.reduce_gradients(ctx));
    optimizer.gather_gradients(ctx);
    result.reduced = download(flat_gradients(policy.store));
    optimizer.step(ctx, 1e-3, result.norms.back());
  }
  result.master = download(optimizer.groups()[0].master);
  result.exp_avg = download(optimizer.groups()[0].exp_avg);
  result.weights = weights_of(policy.store);
  return result;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, double relative,
                  double absolute, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  int faults = 0;
  for (size_t i = 0; i < a.size() && faults < 3; ++i) {
    if (std::abs(double{a[i]} - b[i]) <= relative * std::abs(b[i]) + absolute) continue;
    ADD_FAILURE() << what << "[" << i << "]: " << a[i] << " and " << b[i] << ", rank "
                  << world->rank();
    ++faults;
  }
}

TEST(NcclRanks, OptimizerStepsAsOnTheCpu) {
  const Steps cpu = run_steps({}, false), cuda = run_steps(own_device(), false);
  if (world->size() <= 2) {  // a sum of two does not depend on order
    EXPECT_EQ(first_difference(cuda.reduced, cpu.reduced), "");
  }
  expect_close(cuda.reduced, cpu.reduced, 1e-6, 1e-7, "gradient");
  for (size_t step = 0; step < cpu.norms.size(); ++step)
    EXPECT_NEAR(cuda.norms[step] / cpu.norms[step], 1, 1e-9) << step;
  expect_close(cuda.exp_avg, cpu.exp_avg, 1e-5, 1e-9, "exp_avg");
  expect_close(cuda.master, cpu.master, 1e-6, 1e-7, "master");
  expect_close(cuda.weights, cpu.weights, 1.0 / 256, 1e-6, "weight");  // one bf16 rounding
}

TEST(NcclRanks, EarlyPartsChangeNoBit) {
  const Steps late = run_steps(own_device(), false), early = run_steps(own_device(), true);
  EXPECT_EQ(first_difference(early.reduced, late.reduced), "");
  EXPECT_EQ(first_difference(early.master, late.master), "");
  EXPECT_EQ(first_difference(early.exp_avg, late.exp_avg), "");
  EXPECT_EQ(first_difference(early.weights, late.weights), "");
  EXPECT_EQ(early.norms, late.norms);
}

std::vector<float> run_training(bool tied, int64_t max_tokens, const char* recompute, bool beside) {
  Policy policy(own_device(), tied);
  const auto exchange = make_exchange(own_device());
  dist::Collective dp(std::make_unique<SpiedBackend>(*exchange, beside, [](auto) {}));
  TrainOptions options = packed(max_tokens);
  options.recompute_granularity = recompute;
  Trainer trainer(policy.decoder, policy.store, world->ranks(), dist::data_parallel_groups(dp),
                  options, {}, 1.0f, own_device(), 1);
  for (uint64_t step = 0; step < 3; ++step) {
    const StepResult r = trainer.step(mixed_samples(9, 60 + step, 1024), full_loss(), 1e-3);
    EXPECT_FALSE(r.skipped);
    EXPECT_GT(r.gradient_norm, 0);
  }
  return weights_of(policy.store);
}

TEST(NcclRanks, TrainerOverlapChangesNoBit) {
  for (const bool tied : {true, false}) {
    for (const int64_t max_tokens : {60, 4096}) {  // several microbatches; one: a rank has none
      const auto behind = run_training(tied, max_tokens, "none", false);
      for (const char* recompute : {"none", "full"})
        EXPECT_EQ(first_difference(run_training(tied, max_tokens, recompute, true), behind), "");
      // All ranks hold the same weights.
      const auto all = dist::all_gather_bytes(
          world->ranks(),
          std::string(reinterpret_cast<const char*>(behind.data()), behind.size() * 4));
      for (const auto& bytes : all) EXPECT_EQ(bytes == all[0], true);
    }
  }
}

}  // namespace
}  // namespace slimexx::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(catch_exceptions, false);  // an exception must end all ranks
  slimexx::dist::World world;
  slimexx::train::world = &world;
  if (slimexx::tensor::count_cuda_devices() < slimexx::dist::local_size(world)) {
    std::printf("no GPU for each rank: nothing was checked\n");
    return 77;
  }
  try {
    slimexx::tensor::select_device(slimexx::train::own_device());
    const int status = RUN_ALL_TESTS();
    world.ranks().barrier();
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), e.what());
    world.abort(1);
    return 1;
  }
}
