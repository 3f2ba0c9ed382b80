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
// negative, of the wrong type or contradictory, and for families or features that are not there.
ModelSpec read_model_spec(const Json& config, const std::string& where);
// Hugging Face's own export leaves MTP layers out, whatever config.json says: those whose tensors
// the folder lacks leave the spec. A folder that was opened without weights says nothing of them.
void drop_missing_mtp(ModelSpec& spec, const io::HfFolder& folder);
void drop_missing_mtp(ModelSpec& spec, const std::function<bool(const std::string&)>& has_tensor);
// Where config.json names no dtype, an export is in that of the folder's embedding.
bool names_dtype(const Json& config);
void take_stored_dtype(ModelSpec& spec, const io::HfFolder& folder);
// ModelSpec::kept_dtypes of a spec that says what is trained and has none of them yet.
// `moves_biases`: the run moves correction biases, which are then written in f32.
std::map<std::string, tensor::DType> list_kept_dtypes(const ModelSpec& spec,
                                                      const io::HfFolder& folder,
                                                      bool moves_biases);
// Names of the tensors that no step changes and whose values a store of `compute_dtype` rounds.
std::vector<std::string> list_rounded(const ModelSpec& spec, const io::HfFolder& folder,
                                      tensor::DType compute_dtype);
// The parameters of a model, or of a stage of it, in store order with their Hugging Face names;
// fusions are data (HfPart).
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec);
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec, const StageRange& stage);
// Parameters of all stages of one rank, concatenated (list_stages).
std::vector<ParameterInfo> list_parameters(const ModelSpec& spec,
                                           std::span<const StageRange> stages);

}  // namespace slimexx::model
