// The same scoring and the same training steps on any grid, with ranks as threads: what every grid
// must agree on with one rank.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/load_hf.h"
#include "tiny_policy.h"

namespace slimexx::train {

using TensorValues = std::map<std::string, std::vector<float>>;  // by name on disk

struct GridRun {
  std::string folder;  // a Hugging Face folder
  int world_size = 1;
  dist::GridSizes sizes = {};
  TrainOptions options = {};
  double learning_rate = 1e-3;
  int num_steps = 1;
  bool has_planned_memory = false;  // as little as the plan for these samples allows
};

struct GridResult {
  std::vector<TokenScores> scores;  // before the first step
  std::vector<StepResult> steps;
  TensorValues gradients;  // of the first step, before clipping
  TensorValues weights;    // after the last step
};

// Copies what a rank holds to its place in the whole tensors. `read` is ParameterStore's
// read_weights or read_gradients.
inline void collect_tensors(const model::ParameterStore& store,
                            void (model::ParameterStore::*read)(const model::ParameterInfo&,
                                                                int64_t, float*, int64_t) const,
                            bool trainable_only, TensorValues& values) {
  for (const model::ParameterInfo& info : store.infos()) {
    if (trainable_only && !info.trainable) continue;
    std::vector<float> held(static_cast<size_t>(info.num_elements()));
    (store.*read)(info, 0, held.data(), info.num_elements());
    for (const model::ElementRun& run : model::list_runs(info)) {
      const model::HfPart& part = info.parts[run.part];
      int64_t size = 1;
      for (const int64_t n : part.shape) size *= n;
      std::vector<float>& whole = values[part.name];
      whole.resize(static_cast<size_t>(size));
      std::copy_n(held.begin() + run.in_parameter, run.size, whole.begin() + run.on_disk);
    }
  }
}

// What the thread of one rank does. Results are those that all ranks have, and the tensors of all.
inline void run_grid_rank(const GridRun& run, std::span<const Sample> samples, const StepLoss& loss,
                          dist::Collective& host, std::mutex& mutex, GridResult& result) {
  const io::HfFolder folder = io::HfFolder::open(run.folder);
  model::ModelSpec spec = model::read_model_spec(folder.config(), run.folder + "/config.json");
  model::drop_missing_mtp(spec, folder);
  for (int64_t i = 0; i < run.options.num_trained_mtp(); ++i)
    spec.mtp[static_cast<size_t>(i)].is_trained = true;
  const dist::ProcessGrid grid(host, run.sizes, {});
  const model::Layout layout = model::make_layout({model::list_parameters(spec)}, grid.shape());
  model::ParameterStore store(*layout.ranks[static_cast<size_t>(host.rank())], {}, true);
  model::load_hf_weights(store, spec, folder, {}, &layout);
  const model::Decoder decoder(spec, {}, 128, model::whole_model(spec), run.sizes);
  Trainer trainer(decoder, store, host, grid.groups(), run.options, {}, 0.9f, {}, 1);

  tensor::Buffer memory;
  if (run.has_planned_memory) {
    int64_t longest = 0;
    for (const Sample& sample : samples) longest = std::max(longest, std::ssize(sample.tokens));
    const model::ModelParameters weights = model::bind_weights(store, spec);
    const int64_t bytes =
        std::max(trainer.plan_activations(longest, std::ssize(samples)).least,
                 trainer.plan_scoring(decoder, weights, longest, std::ssize(samples)));
    memory = tensor::Buffer({}, bytes, "activations");
    trainer.borrow_memory(memory.view(tensor::DType::kU8, {bytes}));
  }

  std::vector<TokenScores> scores = trainer.compute_log_probs(decoder, store, samples);
  std::vector<StepResult> steps;
  for (int step = 0; step < run.num_steps; ++step) {
    const auto collect_gradients = [&] {
      trainer.gather_gradients();
      const std::lock_guard lock(mutex);
      collect_tensors(store, &model::ParameterStore::read_gradients, true, result.gradients);
    };
    steps.push_back(trainer.step(samples, loss, run.learning_rate,
                                 step == 0 ? collect_gradients : std::function<void()>{}));
  }
  const std::lock_guard lock(mutex);
  collect_tensors(store, &model::ParameterStore::read_weights, false, result.weights);
  if (host.rank() > 0) return;
  result.scores = std::move(scores);
  result.steps = std::move(steps);
}

inline GridResult run_on_grid(const GridRun& run, std::span<const Sample> samples,
                              const StepLoss& loss = full_loss()) {
  GridResult result;
  std::mutex mutex;
  dist::run_thread_ranks(run.world_size, [&](dist::Collective& host) {
    run_grid_rank(run, samples, loss, host, mutex, result);
  });
  return result;
}

// ||a-b|| / ||b||; a tensor of zeros compares by ||a||.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
}

inline void expect_close(const TensorValues& actual, const TensorValues& expected, double most,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << what << " " << name;
    ASSERT_EQ(actual.at(name).size(), values.size()) << what << " " << name;
    EXPECT_LE(relative_difference(actual.at(name), values), most) << what << " " << name;
  }
}

// Log-probs and entropies to the bit; losses, norms, gradients and weights to sums in another
// order.
inline void expect_same_training(const GridResult& actual, const GridResult& expected) {
  ASSERT_EQ(actual.scores.size(), expected.scores.size());
  for (size_t i = 0; i < expected.scores.size(); ++i) {
    EXPECT_EQ(actual.scores[i].log_probs, expected.scores[i].log_probs) << "sample " << i;
    EXPECT_EQ(actual.scores[i].entropies, expected.scores[i].entropies) << "sample " << i;
  }
  ASSERT_EQ(actual.steps.size(), expected.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const StepResult &a = actual.steps[i], &e = expected.steps[i];
    // Adam makes a full step of a gradient that is all rounding.
    const double most = i == 0 ? 1e-6 : 1e-4;
    EXPECT_NEAR(a.gradient_norm, e.gradient_norm, most * e.gradient_norm) << "step " << i;
    for (size_t m = 0; m < ops::kNumLossMetrics; ++m)
      EXPECT_NEAR(a.metrics[m], e.metrics[m], most * std::abs(e.metrics[m]) + 1e-9)
          << "step " << i << " metric " << m;
  }
  expect_close(actual.gradients, expected.gradients, 1e-5, "gradient");
  expect_close(actual.weights, expected.weights, 1e-4, "weight");
}

}  // namespace slimexx::train
