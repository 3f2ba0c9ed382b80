// A Hugging Face checkpoint in memory: spec, weights, tokenizer and chat template. Commands that
// use a model load it first.
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
#include "slimexx/rl/fp8_choice.h"
#include "slimexx/rl/model_ranks.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"
#include "slimexx/train/options.h"

namespace slimexx::rl {

struct LoadedModel {
  std::string directory;
  std::shared_ptr<const io::HfFolder> folder;  // shared by the ranks of one process
  model::ModelSpec spec;
  std::unique_ptr<model::ParameterStore> store;
  std::vector<int32_t> eos_token_ids;
  model::Layout layout;  // what each rank holds
  int rank = 0;          // this rank
  const std::vector<model::ParameterInfo>& held_parameters() const;
};

// Marks the parameters that `options` train: MTP layers, and all parameters that are not frozen by
// name (freeze.h). Throws Error(kUsage) if the model has fewer MTP layers. `directory` is the
// model's folder.
void choose_trained(model::ModelSpec& spec, const train::TrainOptions& options,
                    const std::string& directory);

// How a model is used, which decides how its parameters are held.
struct ModelUse {
  const train::TrainOptions* training = nullptr;  // for choose_trained; null: nothing is trained
  const Fp8Choice* fp8 = nullptr;                 // for choose_fp8; null: plain weights
};

// Reads config.json and the weights; a long load shows a progress bar if show_progress is set. With
// `ranks`, each rank gets its shard, the ranks of one host read together, and the call is
// collective over them. Without `ranks`, this process reads all. Encoded parameters have their
// plain values only, until encode_weights.
LoadedModel load_model(const std::string& directory, tensor::Device device, bool with_gradients,
                       bool show_progress = false, const ModelRanks* ranks = nullptr,
                       const ModelUse& use = {});

// Like load_model, with the weights of a checkpoint, rounded as in an export of it. Only
// config.json and the other side files are read from `directory`.
LoadedModel load_checkpoint_model(const std::string& directory, const io::Checkpoint& checkpoint,
                                  tensor::Device device, const ModelRanks* ranks = nullptr,
                                  const ModelUse& use = {});

// Like load_model without the weights: `store` stays empty. Collective over `ranks` too. The folder
// needs no weights if `has_weights` is false.
LoadedModel describe_model(const std::string& directory, const ModelRanks* ranks = nullptr,
                           bool has_weights = true, const ModelUse& use = {});
// The weights of a described model, in `memory`: see ParameterStore. `ranks` as in load_model.
std::unique_ptr<model::ParameterStore> load_weights(const LoadedModel& described,
                                                    tensor::Tensor memory,
                                                    const ModelRanks* ranks = nullptr);

// model::encode_weights for loaded weights; does nothing without encoded parameters.
void encode_weights(const model::ParameterStore& store, tensor::Device device);

inline constexpr const char* kStopTokensKey = "rollout.rollout_stop_token_ids";
// Throws Error(kUsage) if one of the ids of `key` is not in the vocabulary.
void check_stop_tokens(const std::vector<int64_t>& ids, int64_t vocab_size,
                       const char* key = kStopTokensKey);
// The tokens that end a response: `ids` of the model's folder and `more`; `more` is checked.
std::vector<int32_t> join_stop_tokens(std::vector<int32_t> ids, int64_t vocab_size,
                                      const std::vector<int64_t>& more,
                                      const char* key = kStopTokensKey);

// Tokenizer and chat template of a folder; each is null if its file is absent.
struct TextSide {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;
};
TextSide load_text_side(const std::string& directory);

// The model of a folder's config.json with random weights, without its MTP layers. See
// init_random_weights (with spread_tokens).
LoadedModel make_random_model(const std::string& directory, tensor::Device device,
                              bool with_gradients, uint64_t seed, const ModelRanks* ranks = nullptr,
                              const ModelUse& use = {});

// "cpu" or "cuda" (the device with index local_rank); "" is cuda if there is a device, otherwise
// cpu. Throws Error(kEnvironment) for cuda if the build has no CUDA or the device cannot be used.
tensor::Device select_device(const std::string& name, int local_rank = 0);

}  // namespace slimexx::rl
