// `slimexx eval`: one model, several sets, no training.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "slimexx/dist/world.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rl {

// The weights that are evaluated.
struct EvaluatedWeights {
  std::string folder;           // of config.json and tokenizer, and of the weights of no checkpoint
  std::string checkpoint = {};  // a step of a run, or what convert-hf wrote; empty: none
  bool are_random = false;      // debug.random_weights
};

// What the configuration names: the checkpoint of model.load, or model.hf_checkpoint. model.load is
// a run folder, its folder of checkpoints or one checkpoint. Throws Error(kUsage) where there is
// none. One rank only: a run may write there.
EvaluatedWeights find_evaluated_weights(const RunConfig& config);
// One line: the folder, and of a run's checkpoint how far the run was.
std::string describe_weights(const EvaluatedWeights& weights);

// The folder of an evaluation's samples: `asked`, which must be new or empty; else a new one in
// <observe.run_dir>/evaluations, which is made, or <observe.run_dir>/samples where no run is; empty
// without either. The first throws Error(kUsage) for one that is not, and makes nothing.
void check_samples_folder(const std::string& asked);
std::string choose_samples_folder(const RunConfig& config, const std::string& asked);

// Evaluates on eval.eval_prompt_data, and writes <samples_folder>/eval_<set>.jsonl unless that is
// empty. `on_ready` is called on rank 0 when all is loaded and nothing is at fault. Gives back what
// the table shows. Collective.
std::vector<EvalResult> run_evaluation(const RunConfig& config, const EvaluatedWeights& weights,
                                       const std::string& samples_folder, tensor::Device device,
                                       dist::World& world, const std::function<void()>& on_ready);

}  // namespace slimexx::rl
