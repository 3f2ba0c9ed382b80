// Runs the same scoring and training steps on any grid, with ranks as threads: every grid must
// agree with one rank.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/freeze.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/load_hf.h"
#include "slimexx/model/stages.h"
#include "train/tiny_policy.h"

namespace slimexx::train {

using TensorValues = std::map<std::string, std::vector<float>>;  // by name on disk

struct GridRun {
  std::string folder = {};                         // a Hugging Face folder
  std::optional<model::ModelSpec> random_of = {};  // if set: random weights instead of `folder`
  tensor::Device device = {};                      // for all ranks
  bool has_device_each = false;                    // if set: rank r uses device r of this type
  int world_size = 1;
  dist::GridSizes sizes = {};
  model::PipelineSplit split = {};  // num_ranks is not used
  int64_t leaves = 0;               // passed to the decoder
  TrainOptions options = {};
  double learning_rate = 1e-3;
  OptimizerOptions optimizer = {};
  int num_steps = 1;
  std::vector<std::string> frozen = {}, only = {};  // see freeze.h
  // The rank that puts a NaN into its gradients before they are summed over ranks.
  std::optional<int> rank_with_nan = {};
  // Activations use planned memory: 0 is the plan's minimum, 1 its maximum.
  std::optional<double> planned_share = {};
  std::optional<int64_t> planned_bytes = {};           // if set: this many bytes
  std::function<void(int64_t bytes)> after_plan = {};  // called for one rank at a time
  std::function<void(dist::Collective& host)> after_steps =
      {};                                                    // on each rank, while all are alive
  std::function<void(const Trainer& trainer)> look_at = {};  // after the steps, on each rank
};

struct GridResult {
  std::vector<TokenScores> scores;  // before the first step
  std::vector<StepResult> steps;
  TensorValues gradients;  // of the first step, before clipping
  TensorValues weights;    // after the last step
  // The embedding after the last step, or its shard, on each rank that has it.
  std::vector<std::vector<float>> embeddings;
};

// Samples are prefixes of one long sequence; all tokens after the prompt are response.
inline std::vector<Sample> samples_of_lengths(const std::vector<int64_t>& lengths, int64_t prompt) {
  PhiloxStream random(19, 3);
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    Sample s;
    s.response_length = length - std::min(prompt, length - 1);
    for (int64_t t = 0; t < length; ++t)
      s.tokens.push_back(static_cast<int32_t>(random.next_below(320)));
    for (int64_t t = 0; t < s.response_length; ++t) {
      s.loss_mask.push_back(random.next_below(5) > 0);
      s.advantages.push_back(static_cast<float>(random.next_normal()));
      for (auto field :
           {&Sample::old_log_probs, &Sample::ref_log_probs, &Sample::rollout_log_probs})
        (s.*field).push_back(static_cast<float>(-5.8 + 0.3 * random.next_normal()));
    }
    samples.push_back(std::move(s));
  }
  return samples;
}

// Copies a rank's parts to their place in the whole tensors. `read` is ParameterStore's
// read_weights or read_gradients. If several ranks hold a part, only the counted one is copied.
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
      if (!part.is_counted) continue;
      int64_t size = 1;
      for (const int64_t n : part.shape) size *= n;
      std::vector<float>& whole = values[part.name];
      whole.resize(static_cast<size_t>(size));
      std::copy_n(held.begin() + run.in_parameter, run.size, whole.begin() + run.on_disk);
    }
  }
}

inline void collect_embedding(const model::ParameterStore& store,
                              std::vector<std::vector<float>>& embeddings) {
  const model::ParameterId id = store.find("embedding.weight");
  if (id == model::kNoParameter) return;
  const model::ParameterInfo& info = store.infos()[static_cast<size_t>(id)];
  std::vector<float>& values = embeddings.emplace_back(static_cast<size_t>(info.num_elements()));
  store.read_weights(info, 0, values.data(), info.num_elements());
}

// Puts NaN in the gaps, which backward does not write: no other rank may receive these NaNs.
inline void put_nan_between_gradients(const model::ParameterStore& store) {
  const auto& infos = store.infos();
  for (size_t i = 0; i + 1 < infos.size(); ++i) {
    const int64_t end = infos[i].offset + infos[i].num_elements();
    if (infos[i].group != infos[i + 1].group || end == infos[i + 1].offset) continue;
    store.group_of(infos[i]).gradients.f32()[end] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  ADD_FAILURE() << "no gap between parameters";
}

inline int64_t planned_bytes(const Trainer& trainer, const StageDecoders& decoders,
                             const model::ParameterStore& store, std::span<const Sample> samples,
                             double share) {
  int64_t longest = 0;
  for (const Sample& sample : samples)
    longest = std::max<int64_t>(longest, std::ssize(sample.tokens));
  const ActivationBytes plan = trainer.plans().plan_activations(longest, std::ssize(samples));
  const auto more = static_cast<int64_t>(share * static_cast<double>(plan.most - plan.least));
  return std::max(plan.least + more,
                  trainer.plans().plan_scoring(decoders, store, longest, std::ssize(samples)));
}

// Runs in the thread of one rank. The result has the values that all ranks share and the tensors
// collected from all ranks.
inline void run_grid_rank(const GridRun& run, std::span<const Sample> samples, const StepLoss& loss,
                          dist::Collective& host, std::mutex& mutex, GridResult& result) {
  std::optional<io::HfFolder> folder;
  model::ModelSpec spec;
  if (run.random_of) {
    spec = *run.random_of;
  } else {
    folder = io::HfFolder::open(run.folder);
    spec = model::read_model_spec(folder->config(), run.folder + "/config.json");
    model::drop_missing_mtp(spec, *folder);
  }
  tensor::Device device = run.device;
  if (run.has_device_each) device.index = host.rank();
  tensor::select_device(device);
  for (int64_t i = 0; i < run.options.num_trained_mtp(); ++i)
    spec.mtp[static_cast<size_t>(i)].is_trained = true;
  if (!run.frozen.empty() || !run.only.empty())
    model::freeze_parameters(spec, run.frozen, run.only);
  const dist::ProcessGrid grid(host, run.sizes, device);
  model::PipelineSplit split = run.split;
  split.num_ranks = run.sizes.pp;
  const auto stages = model::list_stages(spec, split);
  std::vector<std::vector<model::ParameterInfo>> parameters;
  for (const auto& chunks : stages) parameters.push_back(model::list_parameters(spec, chunks));
  const model::Layout layout = model::make_layout(parameters, grid.shape());
  model::ParameterStore store(*layout.ranks[static_cast<size_t>(host.rank())], device, true);
  if (folder) {
    model::load_hf_weights(store, spec, *folder, {}, &layout);
  } else {
    model::init_random_weights(store, spec, 5);
  }
  std::vector<std::unique_ptr<model::Decoder>> chunks;
  std::vector<const model::Decoder*> of_chunks;
  for (const model::StageRange& stage : stages[static_cast<size_t>(grid.groups().pp.rank())]) {
    chunks.push_back(
        std::make_unique<model::Decoder>(spec, device, 512, stage, run.sizes, run.leaves));
    of_chunks.push_back(chunks.back().get());
  }
  const StageDecoders decoders(of_chunks);
  Trainer trainer(decoders, store, host, grid.groups(), run.options, run.optimizer, 0.9f, device,
                  1);

  tensor::Buffer memory;
  if (run.planned_share || run.planned_bytes) {
    const int64_t bytes =
        run.planned_bytes ? *run.planned_bytes
                          : planned_bytes(trainer, decoders, store, samples, *run.planned_share);
    if (run.after_plan) {
      const std::lock_guard lock(mutex);
      run.after_plan(bytes);
    }
    memory = tensor::Buffer(device, bytes, "activations");
    trainer.memory().borrow(memory.view(tensor::DType::kU8, {bytes}));
  }
  if (run.rank_with_nan == host.rank()) put_nan_between_gradients(store);

  std::vector<TokenScores> scores = trainer.compute_log_probs(decoders, store, samples);
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
  if (run.after_steps) run.after_steps(host);
  if (run.look_at) run.look_at(trainer);
  const std::lock_guard lock(mutex);
  collect_tensors(store, &model::ParameterStore::read_weights, false, result.weights);
  collect_embedding(store, result.embeddings);
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

}  // namespace slimexx::train
