#include "slimexx/model/blocks/embedding.h"

#include "model/parameter_list.h"

namespace slimexx::model {

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec) {
  const ParameterId id =
      list.add_weight("embedding.weight", {{"model.embed_tokens.weight", spec.vocab_size}},
                      spec.hidden_size, {{.axis = 0}});
  list.infos.back().zero_before_backward = !spec.is_head_too;
  return id;
}

}  // namespace slimexx::model
