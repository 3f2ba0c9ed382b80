// Tests consecutive expert products on one stream, as a decode step queues them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/cuda/cuda_testing.h"
#include "ops/cuda/experts_cuda_problem.h"
#include "slimexx/ops/experts.h"

namespace slimexx::ops::testing {
namespace {

class ExpertProductsCuda : public DeviceTest {};

// All layers use the same memory, without a wait in between: a product with follows_product must
// still read its own layer's offsets.
TEST_F(ExpertProductsCuda, ProductsThatFollowOthersHaveTheirBits) {
  constexpr int64_t kLayers = 24, kExperts = 64, kTopK = 8, kF = 256, kWidth = 1024;
  const OnDevice w(random_bf16({kExperts, 2 * kF, kWidth}, 1, 2 / std::sqrt(double(kWidth)))),
      w_down(random_bf16({kExperts, kWidth, kF}, 2, 2 / std::sqrt(double(kF))));
  for (const int64_t num_tokens : {1, 2, 9, 64}) {
    const int64_t num_rows = num_tokens * kTopK;
    const OnDevice x(random_bf16({num_rows, kWidth}, 3)), h(Array({num_rows, kF}));
    const DeviceRows shared(num_tokens, kExperts, kTopK);
    std::vector<OnDevice> ids, early, late;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::vector<int32_t> chosen = shared.host.ids;  // shifted to other experts below
      const auto shift = static_cast<int32_t>(layer * 5 % kExperts);
      for (int32_t& id : chosen) id = (id + shift) % kExperts;
      ids.push_back(as_is(integers(chosen)));
      early.emplace_back(Array({num_rows, kWidth}));
      late.emplace_back(Array({num_rows, kWidth}));
    }
    const auto run = [&](const Context& s, size_t layer, const OnDevice& y, bool follows_product) {
      sort_by_expert(s, shared.routed(), rows_of(ids[layer], num_tokens));
      expert_matmul_swiglu_forward(s, h, x, {w}, shared.routed());
      expert_matmul_forward(s, y, h, {w_down}, shared.routed(), {}, follows_product);
    };
    run_op([&](const Context& s) {
      for (size_t layer = 0; layer < kLayers; ++layer) run(s, layer, early[layer], true);
    });
    for (size_t layer = 0; layer < kLayers; ++layer) {
      run_op([&](const Context& s) { run(s, layer, late[layer], false); });
      EXPECT_TRUE(same_bits(early[layer].back(), late[layer].back()))
          << num_tokens << " tokens, layer " << layer;
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
