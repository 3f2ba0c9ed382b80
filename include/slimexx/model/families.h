// The families that exist: one file each (src/model/families/<family>.cpp), one row here.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {

struct Family {
  std::string name;
  std::vector<std::string> architectures;  // values of config.json's "architectures"
  std::vector<std::string> model_types;    // values of "model_type"
  ModelSpec (*read_spec)(const Json& config, const std::string& where);
};

const std::vector<Family>& list_families();

// config.json -> ModelSpec. Throws Error(kInput) naming file and key for sizes that are missing,
// negative, of the wrong type or contradictory, and for unsupported families or features.
ModelSpec read_model_spec(const Json& config, const std::string& where);
// Removes MTP layers whose tensors the folder lacks: Hugging Face's own export drops them without
// changing config.json. A folder that was opened without weights leaves the spec as it is.
void drop_missing_mtp(ModelSpec& spec, const io::HfFolder& folder);
void drop_missing_mtp(ModelSpec& spec, const std::function<bool(const std::string&)>& has_tensor);
// If config.json names no dtype, exports use the dtype of the folder's embedding.
bool names_dtype(const Json& config);
void take_stored_dtype(ModelSpec& spec, const io::HfFolder& folder);
// Computes ModelSpec::kept_dtypes. `spec` must already say what is trained and must have no
// kept_dtypes. `moves_biases`: the run updates correction biases, which are then written in f32.
std::map<std::string, tensor::DType> list_kept_dtypes(const ModelSpec& spec,
                                                      const io::HfFolder& folder,
                                                      bool moves_biases);
// Names of the tensors that no step changes, but a store of `compute_dtype` rounds.
std::vector<std::string> list_rounded(const ModelSpec& spec, const io::HfFolder& folder,
                                      tensor::DType compute_dtype);
// The parameters of a model, or of a stage of it, in store order with their Hugging Face names;
// HfPart describes fused tensors.
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec);
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec, const StageRange& stage);
// Parameters of all stages of one rank, concatenated (list_stages).
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec,
                                           std::span<const StageRange> stages);

}  // namespace slimexx::model
