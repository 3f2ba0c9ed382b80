// Collects the parameters of a model, or of a stage of it, in store order. Blocks add theirs; the
// order is the contract of checkpoints' buckets and of the gradients' norm: embedding, layers in
// ascending order, final norm, head.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/model/parameters.h"

namespace slimexx::model {

// A whole tensor on disk, which is rows of a parameter.
struct HfRows {
  std::string name;
  int64_t rows = 0;
};

class ParameterList {
 public:
  // A matrix of `columns` columns: the rows of its parts one below the other.
  ParameterId add_weight(const std::string& name, const std::vector<HfRows>& parts, int64_t columns,
                         std::vector<Shard> shards, InitKind init = InitKind::kNormal);
  // Vectors are not decayed; those that a model has not get no parameter.
  ParameterId add_bias_if(bool wanted, const std::string& name, const std::vector<HfRows>& parts,
                          std::vector<Shard> shards = {});
  ParameterId add_norm_if(bool wanted, const std::string& name, const std::string& hf_name,
                          int64_t size);
  ParameterId add_norm(const std::string& name, const std::string& hf_name, int64_t size) {
    return add_norm_if(true, name, hf_name, size);
  }

  // Any other.
  ParameterId add(ParameterInfo info);

  std::vector<ParameterInfo> infos;
  // False: infos are without parts, which of hundreds of experts take megabytes.
  bool keeps_parts = true;

 private:
  ParameterId add_vector(const std::string& name, const std::vector<HfRows>& parts, InitKind init,
                         std::vector<Shard> shards);
};

}  // namespace slimexx::model
