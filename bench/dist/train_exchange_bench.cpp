// Measures how much the gradient reduction adds to a training step: after backward, and overlapped
// with it. The model has the shape of a config.json and random weights; each rank has one
// microbatch. One device per rank:
//   mpirun -np 2 train_exchange_bench CONFIG_DIR TOKENS
// Timing ends when the norm of the reduced gradients is known, before the update.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/world.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/trainer.h"

namespace slimexx::train {
namespace {

struct Setting {
  const char* name;
  bool alone = false;  // without other ranks
  int64_t min_part_elements = 0;
};

constexpr Setting kSettings[] = {
    {"one rank, no exchange", true},
    {"each part during attention", false},
    {"... in parts of 1 GiB and more", false, int64_t{1} << 28},
    {"after backward, in one part", false, std::numeric_limits<int64_t>::max()},
};

std::vector<Sample> make_samples(int count, int64_t num_tokens, int64_t vocabulary) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    PhiloxStream stream(static_cast<uint64_t>(7 + i), 1);
    Sample sample;
    for (int64_t t = 0; t < num_tokens; ++t)
      sample.tokens.push_back(
          static_cast<int32_t>(stream.next_below(static_cast<uint64_t>(vocabulary))));
    sample.response_length = num_tokens - 1;
    sample.loss_mask.assign(static_cast<size_t>(num_tokens - 1), 1);
    samples.push_back(std::move(sample));
  }
  return samples;
}

struct Bench {
  dist::World& world;
  const rl::LoadedModel& model;
  const model::Decoder& transformer;
  tensor::Device device;
  int64_t num_tokens;

  // Milliseconds of the fastest step; a step takes as long as its slowest rank.
  double time_step(const Setting& setting) const {
    dist::Collective single;
    dist::Collective& ranks = setting.alone ? single : world.ranks();
    const dist::ProcessGrid grid(ranks, {}, device);
    TrainOptions options;
    options.max_tokens_per_gpu = num_tokens;
    options.recompute_granularity = "full";
    options.max_logits_gib = 1.25;
    Trainer trainer(transformer, *model.store, ranks, grid.groups(), options, {}, 1.0f, device,
                    setting.min_part_elements);
    const auto samples = make_samples(ranks.size(), num_tokens, model.spec.vocab_size);
    StepLoss loss;
    loss.policy.kind = ops::LossKind::kSft;
    double fastest = 1e9;
    for (int i = 0; i < 5; ++i) {
      world.ranks().barrier();
      const auto start = std::chrono::steady_clock::now();
      double took[1] = {0};
      trainer.step(samples, loss, 0, [&] {
        const std::chrono::duration<double, std::milli> passed =
            std::chrono::steady_clock::now() - start;
        took[0] = passed.count();
      });
      tensor::synchronize(tensor::compute_stream(device));
      dist::all_reduce_max(world.ranks(), took);
      if (i >= 2) fastest = std::min(fastest, took[0]);
    }
    return fastest;
  }
};

void run(dist::World& world, const std::string& directory, int64_t num_tokens) {
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  const rl::LoadedModel model = rl::make_random_model(directory, device, true, 1);
  const model::Decoder transformer(model.spec, device, num_tokens);
  const Bench bench{world, model, transformer, device, num_tokens};
  for (const Setting& setting : kSettings) {
    const double ms = bench.time_step(setting);
    if (world.rank() == 0) fmt::print("{:<36} {:8.2f} ms\n", setting.name, ms);
  }
}

}  // namespace
}  // namespace slimexx::train

int main(int argc, char** argv) {
  slimexx::dist::World world;
  if (argc != 3) {
    fmt::print(stderr, "usage: train_exchange_bench CONFIG_DIR TOKENS\n");
    return 2;
  }
  try {
    slimexx::train::run(world, argv[1], std::atoll(argv[2]));
    return 0;
  } catch (const slimexx::Error& e) {
    fmt::print(stderr, "rank {}: {}\n", world.rank(), e.what());
    world.abort(slimexx::exit_status(e.code()));
    return slimexx::exit_status(e.code());
  }
}
