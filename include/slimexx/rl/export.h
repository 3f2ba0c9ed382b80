// A model's weights as a Hugging Face folder, written by all ranks that hold them.
#pragma once
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"

namespace slimexx::rl {

// Writes the weights in the checkpoint's dtype (of what is not trained in that of the folder that
// it was read from), side files from `template_directory`. Every rank of `layout` writes boxes that
// its `store` holds; ranks that hold the same share the rows of it. The bytes do not depend on the
// ranks. An earlier export that is there is replaced when the new one is whole; where anything else
// has come there, the new one stays beside it, and Error(kEnvironment) says where. Collective over
// `host`, the ranks of the layout on host memory; throws AgreedError.
void export_hf(const model::ParameterStore& store, const model::Layout& layout,
               const model::ModelSpec& spec, const std::string& template_directory,
               const std::string& directory, dist::Collective& host);
// One safetensors file of all tensors in f32, written by the ranks that hold them: the weights, and
// of trainable parameters the gradients. Collective over `host`, as export_hf.
void write_weights(const model::ParameterStore& store, const model::Layout& layout,
                   const std::string& path, dist::Collective& host);
void write_gradients(const model::ParameterStore& store, const model::Layout& layout,
                     const std::string& path, dist::Collective& host);
// Throws Error(kUsage) if the file of such a dump is there: a dump replaces nothing.
void refuse_dump_target(const std::string& path);
// Throws Error(kUsage) for a target that is neither new nor empty nor an earlier export of the
// model in `template_directory`, before a run has cost time.
void check_export_target(const std::string& directory, const std::string& template_directory);
// Writes a folder with one tensor of zeros beside the target and removes it: what would fail at the
// end of a run fails before its first rollout.
void try_export(const model::ModelSpec& spec, const std::string& template_directory,
                const std::string& directory);

}  // namespace slimexx::rl
