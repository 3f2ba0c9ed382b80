// A Hugging Face checkpoint in memory: spec, weights, and its text side. What every verb starts
// from.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "slimexx/io/hf_folder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/families.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::rl {

struct LoadedModel {
  std::string directory;
  std::unique_ptr<io::HfFolder> folder;
  model::ModelSpec spec;
  std::unique_ptr<model::ParameterStore> store;
  std::vector<int32_t> eos_token_ids;
};

// Reads config.json and all weights; a long load shows a progress bar where show_progress is set.
LoadedModel load_model(const std::string& directory, tensor::Device device, bool with_gradients,
                       bool show_progress = false);

// The same but for the weights: `store` stays empty.
LoadedModel describe_model(const std::string& directory);
// The weights of a described model, in `memory`: see ParameterStore.
std::unique_ptr<model::ParameterStore> load_weights(const LoadedModel& described,
                                                    tensor::Tensor memory);

// Tokenizer and chat template of a folder; each is absent if its file is.
struct TextSide {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;
};
TextSide load_text_side(const std::string& directory);

// Writes the weights as a Hugging Face folder in the checkpoint's dtype, side files from
// `template_directory`. A Hugging Face folder that is there already is replaced when the new one is
// whole; check_export_target throws Error(kUsage) for anything else, before a run has cost time.
void export_hf(const model::ParameterStore& store, const model::ModelSpec& spec,
               const std::string& template_directory, const std::string& directory);
void check_export_target(const std::string& directory);
// Writes an export of the smallest tensor beside the target and removes it: what would fail at the
// end of a run fails before its first rollout.
void try_export(const model::ParameterStore& store, const model::ModelSpec& spec,
                const std::string& template_directory, const std::string& directory);

// The model that a folder's config.json describes, with random weights: see init_random_weights.
LoadedModel make_random_model(const std::string& directory, tensor::Device device,
                              bool with_gradients, uint64_t seed);

// "cpu" or "cuda" (the device of this rank's number on its host); "" is cpu. Error(kEnvironment)
// for cuda in a build without, or where that device cannot be used.
tensor::Device select_device(const std::string& name, int local_rank = 0);

}  // namespace slimexx::rl
