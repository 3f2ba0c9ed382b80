// Collects the parameters of a model or stage in store order; blocks add theirs. Checkpoint buckets
// and the gradient norm depend on this order: embedding, layers in ascending order, final norm,
// head.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/model/parameters.h"

namespace slimexx::model {

// A tensor on disk that forms consecutive rows of a parameter.
struct HfRows {
  std::string name;
  int64_t rows = 0;
};

class ParameterList {
 public:
  // A matrix of `columns` columns; its parts are stacked by rows.
  ParameterId add_weight(const std::string& name, const std::vector<HfRows>& parts, int64_t columns,
                         std::vector<Shard> shards, InitKind init = InitKind::kNormal);
  // add_weight for the weight of a Linear.
  ParameterId add_linear(const std::string& name, const std::vector<HfRows>& parts, int64_t columns,
                         std::vector<Shard> shards, InitKind init = InitKind::kNormal);
  // A vector, without weight decay. Adds nothing and returns kNoParameter if `wanted` is false.
  ParameterId add_bias_if(bool wanted, const std::string& name, const std::vector<HfRows>& parts,
                          std::vector<Shard> shards = {});
  ParameterId add_norm_if(bool wanted, const std::string& name, const std::string& hf_name,
                          int64_t size);
  ParameterId add_norm(const std::string& name, const std::string& hf_name, int64_t size) {
    return add_norm_if(true, name, hf_name, size);
  }

  // Adds any other parameter.
  ParameterId add(ParameterInfo info);

  std::vector<ParameterInfo> infos;
  // False: infos have no parts, which take megabytes for hundreds of experts.
  bool keeps_parts = true;

 private:
  ParameterId add_vector(const std::string& name, const std::vector<HfRows>& parts, InitKind init,
                         std::vector<Shard> shards);
};

}  // namespace slimexx::model
