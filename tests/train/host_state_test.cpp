// Tests updates of optimizer state in host memory: chunked updates have the bits of one whole
// update.
#include "slimexx/train/host_state.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kState = 1000, kFlat = 1300;
constexpr ops::AdamWStep kHostStep{.lr = 1e-2f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.98f,
                                   .eps = 1e-8f,
                                   .weight_decay = 0,
                                   .step = 3,
                                   .gradient_scale = 0.7f};
// Separate ranges of the flat arrays; one is longer than many chunks.
const std::vector<ops::DecayRange> kStateRanges = {
    {0, 5, 0.1f, 20}, {5, 800, 0.0f, 40}, {900, 1000, 0.1f, 300}};

void fill_array(const Tensor& x, uint64_t seed, bool positive) {
  PhiloxStream random(seed, 1);
  std::vector<float> values(static_cast<size_t>(x.num_elements()));
  for (float& value : values) {
    value = static_cast<float>(random.next_normal());
    if (positive) value *= value;
  }
  tensor::convert_elements(DType::kF32, values.data(), x.dtype(), x.raw(), x.num_elements());
}

std::string bytes_of(const Tensor& x) {
  return {static_cast<const char*>(x.raw()), static_cast<size_t>(x.size_bytes())};
}

struct StateArrays {
  explicit StateArrays(DType weight_dtype, DType moment_dtype) : memory({}, 64 * 1024, "test") {
    int64_t at = 0;
    const auto take = [&](DType dtype, int64_t n) {
      const Tensor view = memory.view(dtype, {n}, at);
      at += (view.size_bytes() + 63) / 64 * 64;
      return view;
    };
    group = {take(DType::kF32, kState), take(moment_dtype, kState), take(moment_dtype, kState),
             take(weight_dtype, kFlat), take(DType::kF32, kFlat)};
    fill_array(group.master, 1, false);
    fill_array(group.exp_avg, 2, false);
    fill_array(group.exp_avg_sq, 3, true);
    fill_array(group.weights, 4, false);
    fill_array(group.gradients, 5, false);
  }
  tensor::Buffer memory;
  HostState::Group group;
};

struct HostStateCase {
  DType weights, moments;
};

class HostStateTest : public testing::TestWithParam<HostStateCase> {};

TEST_P(HostStateTest, ChunksGiveTheBitsOfTheWhole) {
  tensor::Arena no_scratch({}, 0, "test");
  const ops::Context ctx = ops::compute_context(no_scratch);
  StateArrays expected(GetParam().weights, GetParam().moments);
  const HostState::Group& e = expected.group;
  ops::adamw_ranges(ctx, e.weights, e.master, e.exp_avg, e.exp_avg_sq, e.gradients, kStateRanges,
                    kHostStep);
  for (const int64_t chunk : {7, 64, 5000}) {
    HostState state({}, 64, GetParam().weights, chunk);
    StateArrays actual(GetParam().weights, GetParam().moments);
    const HostState::Group& a = actual.group;
    state.update(ctx, a, kStateRanges, kHostStep);
    EXPECT_EQ(bytes_of(a.master), bytes_of(e.master)) << chunk;
    EXPECT_EQ(bytes_of(a.exp_avg), bytes_of(e.exp_avg)) << chunk;
    EXPECT_EQ(bytes_of(a.exp_avg_sq), bytes_of(e.exp_avg_sq)) << chunk;
    EXPECT_EQ(bytes_of(a.weights), bytes_of(e.weights)) << chunk;
  }
}

TEST_P(HostStateTest, WeightsAreReadAndWritten) {
  HostState state({}, kState * 4, GetParam().weights, 64);
  StateArrays arrays(GetParam().weights, GetParam().moments);
  const Tensor weights = arrays.group.weights.rows(100, 100 + kState);
  const std::string before = bytes_of(arrays.group.weights);
  const Tensor values = state.view(DType::kF32, kState, 0);
  state.read_weights(values, weights);
  std::vector<float> wide(static_cast<size_t>(kState));
  tensor::convert_elements(weights.dtype(), weights.raw(), DType::kF32, wide.data(), kState);
  for (int64_t i = 0; i < kState; ++i)
    ASSERT_EQ(values.f32()[i], wide[static_cast<size_t>(i)]) << i;
  fill_array(weights, 6, false);
  state.write_weights(weights, values);
  EXPECT_EQ(bytes_of(arrays.group.weights), before);
}

INSTANTIATE_TEST_SUITE_P(Types, HostStateTest,
                         testing::Values(HostStateCase{DType::kF32, DType::kF32},
                                         HostStateCase{DType::kBF16, DType::kF32},
                                         HostStateCase{DType::kBF16, DType::kBF16}));

}  // namespace
}  // namespace slimexx::train
