// Random weights for `slimexx init` and tests.
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {
namespace {

constexpr int64_t kChunkElements = 1 << 20;

void fill_parameter(ParameterStore& store, const ParameterInfo& info, double range, uint64_t seed) {
  PhiloxStream stream(seed, XXH3_64bits(info.name.data(), info.name.size()));
  const int64_t n = info.num_elements();
  std::vector<float> values(static_cast<size_t>(std::min(n, kChunkElements)));
  for (int64_t begin = 0; begin < n; begin += kChunkElements) {
    const int64_t count = std::min(kChunkElements, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      float& value = values[static_cast<size_t>(i)];
      switch (info.init) {
        case InitKind::kNormal:
          value = static_cast<float>(range * stream.next_normal());
          break;
        case InitKind::kOnes:
          value = 1.0f;
          break;
        case InitKind::kZeros:
          value = 0.0f;
          break;
      }
    }
    store.write_weights(info, begin, values.data(), count);
  }
}

}  // namespace

void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed) {
  const auto& infos = store.infos();
  parallel_for(std::ssize(infos), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      fill_parameter(store, infos[static_cast<size_t>(i)], spec.initializer_range, seed);
  });
}

}  // namespace slimexx::model
