// Compares AdamW and the gradient's norm on the device with the CPU's.
#include "ops/cuda/cuda_testing.h"

#include <limits>

#include "cpu_context.h"
#include "ops/option_cases.h"
#include "slimexx/ops/optimizer.h"

namespace slimexx::ops::testing {
namespace {

class OptimizerCuda : public DeviceTest {};

// Optimizer state may be on host or device, so both must give the same bits. The learning rates and
// steps include some whose constants round up and some whose constants round down.
TEST_F(OptimizerCuda, AdamWHasTheBitsOfTheCpu) {
  for (const auto& [n, lr] : {std::pair<int64_t, float>{1, 1e-2f},
                              {16, 1e-2f},
                              {100, 1e-6f},
                              {20000, 1e-2f},
                              {20000, 1e-6f},
                              {20000, 3e-5f}}) {
    const Array p = Array::random({n}, 1), m({n}), v({n}), rounded_p({n}, DType::kBF16);
    const OnDevice dp = as_is(p), dm = as_is(m), dv = as_is(v), dw(Array({n}));
    AdamWStep step = cases::kAdamWStep;
    step.lr = lr;
    for (step.step = 1; step.step <= 12; ++step.step) {
      const Array g = Array::random({n}, 100 + static_cast<uint64_t>(step.step));
      const OnDevice dg = as_is(g);
      adamw(cpu_context(), rounded_p, p, m, v, g, step);
      run_op([&](const Context& s) { adamw(s, dw, dp, dm, dv, dg, step); });
    }
    EXPECT_TRUE(same_bits(dp.back(), p)) << n << ", " << lr;
    EXPECT_TRUE(same_bits(dm.back(), m)) << n << ", " << lr;
    EXPECT_TRUE(same_bits(dv.back(), v)) << n << ", " << lr;
    EXPECT_TRUE(same_bits(dw.back(), rounded(dp.back()))) << n;
  }
}

// The weight update uses the new moments in f32, before they are rounded once for storage in bf16.
TEST_F(OptimizerCuda, Bf16MomentsAgreeWithTheCpu) {
  constexpr int64_t n = 5000;
  const Array p = Array::random({n}, 1), m({n}, DType::kBF16), v({n}, DType::kBF16),
              w({n}, DType::kBF16);
  const OnDevice dp = as_is(p), dm = as_is(m), dv = as_is(v), dw(Array({n}));
  AdamWStep step = cases::kAdamWStep;
  for (step.step = 1; step.step <= 5; ++step.step) {
    const Array g = Array::random({n}, 100 + static_cast<uint64_t>(step.step));
    const OnDevice dg = as_is(g);
    adamw(cpu_context(), w, p, m, v, g, step);
    run_op([&](const Context& s) { adamw(s, dw, dp, dm, dv, dg, step); });
  }
  EXPECT_TRUE(same_bits(dp.back(), p));
  EXPECT_TRUE(same_bits(dw.back(), rounded(dp.back())));
  EXPECT_TRUE(same_bits(widened(dm.back()), widened(m)));
  EXPECT_TRUE(same_bits(widened(dv.back()), widened(v)));
}

// A shard's bits do not depend on where it was cut; every range has its own weight decay.
TEST_F(OptimizerCuda, RangesAndShardsChangeNothing) {
  AdamWStep step = cases::kAdamWStep;
  step.step = 3;
  constexpr int64_t n = 30000;
  const OnDevice g = as_is(Array::random({n}, 4));
  struct State {
    OnDevice w{Array({n})}, p = as_is(Array::random({n}, 1)), m = as_is(Array::random({n}, 2)),
                            v = as_is(Array::random({n}, 3, 0.01, 0.3));
  };
  const State whole, ranges, shards;
  const auto part = [](const OnDevice& x, int64_t begin, int64_t end) {
    return x.view().rows(begin, end);
  };
  const std::vector<DecayRange> decays{{0, 12352, 0.1f}, {12352, 20000, 0.0f}, {20000, n, 0.1f}};
  for (const DecayRange& r : decays) {
    step.weight_decay = r.weight_decay;
    const auto own = [&](const OnDevice& x) { return part(x, r.begin, r.end); };
    run_op([&](const Context& s) {
      adamw(s, own(whole.w), own(whole.p), own(whole.m), own(whole.v), own(g), step);
    });
  }
  run_op([&](const Context& s) {
    adamw_ranges(s, ranges.w, ranges.p, ranges.m, ranges.v, g, decays, step);
  });
  for (const int64_t cut : {0, 16384}) {
    const int64_t end = cut == 0 ? 16384 : n;
    std::vector<DecayRange> own;
    for (const DecayRange& r : decays)
      if (r.begin < end && r.end > cut)
        own.push_back({std::max(r.begin, cut) - cut, std::min(r.end, end) - cut, r.weight_decay});
    const auto shard = [&](const OnDevice& x) { return part(x, cut, end); };
    run_op([&](const Context& s) {
      adamw_ranges(s, shard(shards.w), shard(shards.p), shard(shards.m), shard(shards.v), shard(g),
                   own, step);
    });
  }
  for (const auto field : {&State::w, &State::p, &State::m, &State::v}) {
    EXPECT_TRUE(same_bits((ranges.*field).back(), (whole.*field).back()));
    EXPECT_TRUE(same_bits((shards.*field).back(), (whole.*field).back()));
  }
}

// Pieces of weights and gradients, aligned and unaligned, with their states stored back to back.
TEST_F(OptimizerCuda, PiecesOfALongerArray) {
  constexpr int64_t n = 60000;
  AdamWStep step = cases::kAdamWStep;
  step.step = 3;
  const OnDevice g = as_is(Array::random({n}, 4)), w(Array({n})), whole_w(Array({n}));
  const Array start = Array::random({n}, 1), avg = Array::random({n}, 2),
              avg_sq = Array::random({n}, 3, 0.01, 0.3);
  const OnDevice p = as_is(start), m = as_is(avg), v = as_is(avg_sq);
  run_op([&](const Context& s) { adamw(s, whole_w, p, m, v, g, step); });
  const std::vector<ElementRange> pieces{{16, 20016}, {24000, 24007}, {30005, 59000}};
  std::vector<DecayRange> ranges;
  int64_t held = 0;
  for (const ElementRange& r : pieces) {
    ranges.push_back({held, held + r.end - r.begin, step.weight_decay, r.begin - held});
    held += r.end - r.begin;
  }
  const auto pick = [&](const Array& all) {
    Array own({held});
    for (const DecayRange& r : ranges)
      for (int64_t i = r.begin; i < r.end; ++i) own[i] = all[i + r.shift];
    return own;
  };
  const OnDevice own_p = as_is(pick(start)), own_m = as_is(pick(avg)), own_v = as_is(pick(avg_sq));
  run_op([&](const Context& s) { adamw_ranges(s, w, own_p, own_m, own_v, g, ranges, step); });
  EXPECT_TRUE(same_bits(own_p.back(), pick(p.back())));
  EXPECT_TRUE(same_bits(own_m.back(), pick(m.back())));
  EXPECT_TRUE(same_bits(own_v.back(), pick(v.back())));
  Array expected({n});  // zeros remain between the pieces
  const Array updated = whole_w.back();
  for (const ElementRange& r : pieces)
    for (int64_t i = r.begin; i < r.end; ++i) expected[i] = updated[i];
  EXPECT_TRUE(same_bits(w.back(), expected));
}

// f32 weights, such as the router's, get the bits of the masters, at their own offsets.
TEST_F(OptimizerCuda, WeightsInF32AreTheMasters) {
  AdamWStep step = cases::kAdamWStep;
  step.step = 3;
  const OnDevice g = as_is(Array::random({700}, 4)), w = as_is(Array({700})),
                 p = as_is(Array::random({300}, 1)), m = as_is(Array::random({300}, 2)),
                 v = as_is(Array::random({300}, 3, 0.01, 0.3));
  const std::vector<DecayRange> ranges{{0, 100, 0.1f, 16}, {100, 300, 0.0f, 250}};
  run_op([&](const Context& s) { adamw_ranges(s, w, p, m, v, g, ranges, step); });
  Array expected({700});
  const Array master = p.back();
  for (const DecayRange& r : ranges)
    for (int64_t i = r.begin; i < r.end; ++i) expected[i + r.shift] = master[i];
  EXPECT_TRUE(same_bits(w.back(), expected));
  EXPECT_FALSE(same_bits(master, Array::random({300}, 1)));
}

TEST_F(OptimizerCuda, SumOfSquaresOfRanges) {
  const Array x = Array::random({400000}, 1);
  const OnDevice dx = as_is(x);
  const auto sum = [&](const std::vector<ElementRange>& ranges) {
    double result = -1;
    run_op([&](const Context& s) { result = sum_of_squares_of_ranges(s, dx, ranges); });
    return result;
  };
  const std::vector<ElementRange> ranges{
      {16, 32784}, {32784, 32784}, {40000, 40001}, {50003, 200000}, {300000, 400000}};
  const double expected = sum_of_squares_of_ranges(cpu_context(), x, ranges), got = sum(ranges);
  EXPECT_NEAR(got, expected, 1e-12 * expected);
  EXPECT_EQ(sum(ranges), got);
  EXPECT_EQ(sum({}), 0);
}

double norm_on_device(const Array& x) {
  const OnDevice dx = as_is(x);
  double sum = -1.0;
  run_op([&](const Context& s) { sum = sum_of_squares(s, dx); });
  return sum;
}

TEST_F(OptimizerCuda, SumOfSquares) {
  for (const int64_t n : {0, 1, 4095, 4096, 4097, 50000, 3000000}) {
    const Array x = Array::random({n}, 1);
    const double expected = sum_of_squares(cpu_context(), x), got = norm_on_device(x);
    EXPECT_NEAR(got, expected, 1e-12 * expected) << n;
    EXPECT_EQ(norm_on_device(x), got) << "the same bits, " << n;
  }
  Array x = Array::random({10000}, 1);
  x[7777] = std::nanf("");
  EXPECT_TRUE(std::isnan(norm_on_device(x)));
  x[7777] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(norm_on_device(x)));
}

}  // namespace
}  // namespace slimexx::ops::testing
