// A Hugging Face checkpoint in memory: spec, weights, and its text side. What every verb starts
// from.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"
#include "slimexx/rl/model_ranks.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"
#include "slimexx/train/options.h"

namespace slimexx::rl {

struct LoadedModel {
  std::string directory;
  std::shared_ptr<const io::HfFolder> folder;  // of ranks in one process the same
  model::ModelSpec spec;
  std::unique_ptr<model::ParameterStore> store;
  std::vector<int32_t> eos_token_ids;
  model::Layout layout;  // what each rank holds
  int rank = 0;          // this one
  const std::vector<model::ParameterInfo>& held_parameters() const;
};

// Which parameters `options` train: MTP layers, and what is frozen by name (freeze.h). Throws
// Error(kUsage) where the model has fewer MTP layers; `directory` is the model's.
void choose_trained(model::ModelSpec& spec, const train::TrainOptions& options,
                    const std::string& directory);

// Reads config.json and the weights; a long load shows a progress bar where show_progress is set.
// With `ranks`, each rank gets what it holds, and ranks of one host read together; collective over
// them. Without, this process reads all. `training` as in choose_trained.
LoadedModel load_model(const std::string& directory, tensor::Device device, bool with_gradients,
                       bool show_progress = false, const ModelRanks* ranks = nullptr,
                       const train::TrainOptions* training = nullptr);

// The same with the weights of a checkpoint, rounded as an export of it has them; of `directory`
// only config.json and its companions are read.
LoadedModel load_checkpoint_model(const std::string& directory, const io::Checkpoint& checkpoint,
                                  tensor::Device device, const ModelRanks* ranks = nullptr);

// The same but for the weights: `store` stays empty. Collective over `ranks` too. The folder may be
// without them where `has_weights` is not set.
LoadedModel describe_model(const std::string& directory, const ModelRanks* ranks = nullptr,
                           bool has_weights = true);
// The weights of a described model, in `memory`: see ParameterStore. `ranks` as above.
std::unique_ptr<model::ParameterStore> load_weights(const LoadedModel& described,
                                                    tensor::Tensor memory,
                                                    const ModelRanks* ranks = nullptr);

inline constexpr const char* kStopTokensKey = "rollout.rollout_stop_token_ids";
// Throws Error(kUsage) for one of the ids of `key` that the vocabulary does not have.
void check_stop_tokens(const std::vector<int64_t>& ids, int64_t vocab_size,
                       const char* key = kStopTokensKey);
// The tokens that end a response: `ids` of the model's folder and `more`, which are checked.
std::vector<int32_t> join_stop_tokens(std::vector<int32_t> ids, int64_t vocab_size,
                                      const std::vector<int64_t>& more,
                                      const char* key = kStopTokensKey);

// Tokenizer and chat template of a folder; each is absent if its file is.
struct TextSide {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;
};
TextSide load_text_side(const std::string& directory);

// The model that a folder's config.json describes, but its MTP layers, with random weights: see
// init_random_weights, with tokens spread.
LoadedModel make_random_model(const std::string& directory, tensor::Device device,
                              bool with_gradients, uint64_t seed, const ModelRanks* ranks = nullptr,
                              const train::TrainOptions* training = nullptr);

// "cpu" or "cuda" (the device of this rank's number on its host); "" is cpu. Error(kEnvironment)
// for cuda in a build without, or where that device cannot be used.
tensor::Device select_device(const std::string& name, int local_rank = 0);

}  // namespace slimexx::rl
