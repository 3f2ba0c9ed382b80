// Random weights for `slimexx init` and tests.
#include <xxhash.h>

#include "slimexx/base/philox.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {

void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed) {
  for (const auto& info : store.infos()) {
    const tensor::Tensor weight = store.weight(info.name);
    PhiloxStream stream(seed, XXH3_64bits(info.name.data(), info.name.size()));
    for (int64_t i = 0; i < info.num_elements(); ++i) {
      switch (info.init) {
        case InitKind::kNormal:
          weight.f32()[i] = static_cast<float>(spec.initializer_range * stream.next_normal());
          break;
        case InitKind::kOnes:
          weight.f32()[i] = 1.0f;
          break;
        case InitKind::kZeros:
          weight.f32()[i] = 0.0f;
          break;
      }
    }
  }
}

}  // namespace slimexx::model
