// Copies of embedding and head that a checkpoint keeps with an MTP layer. The layer computes with
// the model's own ones, but programs that draft with it may read the copies. Of a layer that is
// trained, copies that were equal to the model's own before the first step stay so; others, and
// those of layers that are not trained, keep what was loaded.
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
  // `store` is borrowed. It may lack them: the last stage has them.
  MtpCopies(const model::ModelSpec& spec, const model::ParameterStore& store);
  // With the weights before the first step; later calls do nothing. Collective over `host`, whose
  // ranks have a model of the same spec.
  void find_equal(const ops::Context& ctx, dist::Collective& host);
  // Behind every update.
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
