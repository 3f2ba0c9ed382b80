// A model's weights as a Hugging Face folder, written by all ranks that hold them.
#pragma once
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"

namespace slimexx::rl {

// Writes the weights in the checkpoint's dtype, and the side files from `template_directory`.
// Tensors that are not trained keep the dtype of the folder that they were read from. Every rank of
// `layout` writes from its `store`: of a shard that several ranks hold, each of these ranks writes
// some of the rows. The bytes do not depend on the number of ranks. An earlier export at
// `directory` is replaced when the new one is complete. If anything else has appeared there, the
// new export stays beside it, and Error(kEnvironment) says where. Collective over `host`, the ranks
// of the layout on host memory; throws AgreedError.
void export_hf(const model::ParameterStore& store, const model::Layout& layout,
               const model::ModelSpec& spec, const std::string& template_directory,
               const std::string& directory, dist::Collective& host);
// One safetensors file of all tensors in f32, written by the ranks that hold them: the weights, or
// the gradients of trainable parameters. Collective over `host`, like export_hf.
void write_weights(const model::ParameterStore& store, const model::Layout& layout,
                   const std::string& path, dist::Collective& host);
void write_gradients(const model::ParameterStore& store, const model::Layout& layout,
                     const std::string& path, dist::Collective& host);
// Throws Error(kUsage) if the file exists: a dump replaces nothing.
void refuse_dump_target(const std::string& path);
// Throws Error(kUsage) unless the target is new, empty, or an earlier export of the model in
// `template_directory`. Called at the start of a run.
void check_export_target(const std::string& directory, const std::string& template_directory);
// Writes a folder with one tensor of zeros beside the target and removes it. So an export that
// would fail at the end of a run fails before its first rollout.
void try_export(const model::ModelSpec& spec, const std::string& template_directory,
                const std::string& directory);

}  // namespace slimexx::rl
