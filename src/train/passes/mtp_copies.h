// Copies of embedding and head that a checkpoint keeps with an MTP layer. The layer computes with
// the model's own tensors, but other programs that draft with it may read the copies. If a layer is
// trained, copies that equalled the model's own tensors before the first step follow them; all
// other copies keep the loaded values.
#pragma once
#include <string>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/ops/context.h"

namespace slimexx::train {

class MtpCopies {
 public:
  // `store` is borrowed. It has copies only on the last stage.
  MtpCopies(const model::ModelSpec& spec, const model::ParameterStore& store);
  // Compares the weights before the first step; later calls do nothing. Collective over `host`,
  // whose ranks have a model of the same spec.
  void find_equal(const ops::Context& ctx, dist::Collective& host);
  // Call after every update.
  void follow(const ops::Context& ctx) const;

 private:
  struct Copy {
    std::string name;               // on disk
    tensor::Tensor copy, original;  // this rank's rows; undefined on other stages
    bool follows = false;
  };
  std::vector<Copy> copies_;  // the same on all ranks
  bool is_checked_ = false;
};

}  // namespace slimexx::train
