// `slimexx eval`: one model, several sets, no training.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "slimexx/dist/world.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rl {

// The weights to evaluate.
struct EvaluatedWeights {
  std::string folder;  // has config.json and the tokenizer; without a checkpoint also the weights
  std::string checkpoint = {};  // a step of a run, or the output of convert-hf; empty: none
  bool are_random = false;      // debug.random_weights
};

// The weights that the configuration names: the checkpoint of model.load, or model.hf_checkpoint.
// model.load is a run folder, its folder of checkpoints or one checkpoint. Throws Error(kUsage) if
// that holds no checkpoint. One rank only: a run may be writing there.
EvaluatedWeights find_evaluated_weights(const RunConfig& config);
// One line: the folder, and for a run's checkpoint the progress of the run.
std::string describe_weights(const EvaluatedWeights& weights);

// The folder for an evaluation's samples: `asked`, which must be new or empty. Without `asked`: a
// new folder in <observe.run_dir>/evaluations (it is made), or <observe.run_dir>/samples if there
// is no run; empty without run_dir. check_samples_folder throws Error(kUsage) if `asked` is neither
// new nor empty, and makes nothing.
void check_samples_folder(const std::string& asked);
std::string choose_samples_folder(const RunConfig& config, const std::string& asked);

// Evaluates on eval.eval_prompt_data, and writes <samples_folder>/eval_<set>.jsonl unless
// samples_folder is empty. `on_ready` is called on rank 0 when all is loaded and checked. Returns
// the rows of the table. Collective.
std::vector<EvalResult> run_evaluation(const RunConfig& config, const EvaluatedWeights& weights,
                                       const std::string& samples_folder, tensor::Device device,
                                       dist::World& world, const std::function<void()>& on_ready);

}  // namespace slimexx::rl
