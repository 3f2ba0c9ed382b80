// Decode attention reads keys of earlier steps while the kernels before it still run
// (context_is_written), and this step's keys after they are written. Here the kernel that writes
// keys has to wait for a product of about a millisecond, and the slots that it writes hold NaN
// until then.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/cuda/cuda_testing.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::ops::testing {
namespace {

class EarlyKeysCuda : public DeviceTest {};

constexpr uint64_t kSeed = 41;
constexpr int64_t kPageTokens = 16;
constexpr float kEps = 1e-5f;

// A product with one tile: it leaves most of the device free, so that later kernels can start
// early.
struct SlowProduct {
  static constexpr int64_t kDepth = 1 << 18;
  OnDevice y{Array({64, 64})}, x{Array({64, kDepth})}, w{Array({64, kDepth})};
  void run(const Context& ctx) const { matmul_forward(ctx, y, x, {w}); }
};

// The last token of each sequence is decoded. Every sequence has pages of its own.
struct Decodes {
  std::vector<int32_t> lengths, cu, context, slots, positions;
  int64_t pages_each = 0;
  OnDevice table, device_cu, device_context, device_slots, device_positions;

  explicit Decodes(std::vector<int32_t> all) : lengths(std::move(all)), cu{0} {
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    pages_each = (longest + kPageTokens - 1) / kPageTokens;
    for (size_t b = 0; b < lengths.size(); ++b) {
      cu.push_back(cu.back() + 1);
      positions.push_back(lengths[b] - 1);
      context.push_back(lengths[b] - 1);
      slots.push_back(static_cast<int32_t>(static_cast<int64_t>(b) * pages_each * kPageTokens) +
                      lengths[b] - 1);
    }
    Array pages({count(), pages_each}, DType::kI32);
    std::iota(pages.view().i32(), pages.view().i32() + pages.size(), 0);
    table = OnDevice(pages);
    device_cu = integers_on_device(cu);
    device_context = integers_on_device(context);
    device_slots = integers_on_device(slots);
    device_positions = integers_on_device(positions);
  }
  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
  // Keys before the decoded token; NaN from there on.
  Array make_pages(int64_t heads, int64_t dim, uint64_t seed) const {
    Array pages = random_bf16({count() * pages_each, kPageTokens, heads, dim}, seed);
    const int64_t row = heads * dim, each = pages_each * kPageTokens;
    for (int64_t b = 0; b < count(); ++b)
      for (int64_t i = lengths[static_cast<size_t>(b)] - 1; i < each; ++i)
        std::fill_n(pages.view().f32() + (b * each + i) * row, row, std::nanf(""));
    return pages;
  }
  AttentionLayout layout(bool context_is_written) const {
    return {.cu_seqlens = cu,
            .context_lens = context,
            .page_table = table,
            .page_tokens = kPageTokens,
            .context_is_written = context_is_written,
            .device_cu_seqlens = device_cu,
            .device_context_lens = device_context};
  }
};

struct Rotation {
  OnDevice cos, sin;
  Rotation(int64_t positions, int64_t pairs)
      : cos(as_is(Array::random({positions, pairs}, kSeed + 7))),
        sin(as_is(Array::random({positions, pairs}, kSeed + 8))) {}
  RotaryTable table() const { return {cos, sin, RotaryStyle::kHalfSplit}; }
};

// With these lengths segments are merged in a cluster, in a separate kernel, and in registers.
std::vector<std::vector<int32_t>> all_lengths() {
  std::vector<int32_t> many;
  for (int32_t i = 0; i < 120; ++i) many.push_back(1 + i * 7);
  return {{300}, {1, 64, 65, 128, 129, 257}, {2100, 5}, many};
}

TEST_F(EarlyKeysCuda, HeadsOfThisStepAreAwaited) {
  const SlowProduct slow;
  const QkvHeads heads{.query_heads = 32, .kv_heads = 4, .head_dim = 128};
  const float scale = 1.0f / std::sqrt(128.0f);
  for (const auto& lengths : all_lengths()) {
    const Decodes d(lengths);
    const Rotation rotation(*std::max_element(lengths.begin(), lengths.end()), 64);
    const OnDevice in(random_bf16({d.count(), 40 * 128}, kSeed));
    Array results[2];
    for (const bool early : {false, true}) {
      const OnDevice k(d.make_pages(4, 128, kSeed + 1)), v(d.make_pages(4, 128, kSeed + 2)),
          q(Array({d.count(), 36 * 128})), out(Array({d.count(), 32, 128}));
      run_op([&](const Context& ctx) {
        slow.run(ctx);
        qk_norm_rotary_forward(ctx, q, in, {}, {}, kEps, rotation.table(), d.device_positions,
                               {k, v, d.device_slots}, heads);
        attention_forward(ctx, out, {}, q.view().columns(0, 32 * 128).split_columns(32), k, v,
                          d.layout(early), scale);
      });
      results[early ? 1 : 0] = out.back();
    }
    ASSERT_FALSE(std::isnan(results[0][0]));
    EXPECT_TRUE(same_bits(results[1], results[0]))
        << lengths.size() << " sequences, the first of " << lengths[0] << ", seed " << kSeed;
  }
}

TEST_F(EarlyKeysCuda, LatentRowsOfThisStepAreAwaited) {
  const SlowProduct slow;
  for (const auto& lengths : all_lengths()) {
    const Decodes d(lengths);
    const Rotation rotation(*std::max_element(lengths.begin(), lengths.end()), 32);
    const OnDevice raw(random_bf16({d.count(), 576}, kSeed)),
        norm(random_bf16({512}, kSeed + 1, 0.3, 1.0)),
        q(random_bf16({d.count(), 20, 576}, kSeed + 2));
    Array results[2];
    for (const bool early : {false, true}) {
      const OnDevice pages(d.make_pages(1, 576, kSeed + 3)), latent(Array({d.count(), 576})),
          out(Array({d.count(), 20, 512}));
      run_op([&](const Context& ctx) {
        slow.run(ctx);
        latent_rows_forward(ctx, latent, raw, norm, kEps, rotation.table(), d.device_positions,
                            {pages, d.device_slots});
        attention_forward(ctx, out, {}, q, pages, pages, d.layout(early), 1.0f / 24.0f);
      });
      results[early ? 1 : 0] = out.back();
    }
    ASSERT_FALSE(std::isnan(results[0][0]));
    EXPECT_TRUE(same_bits(results[1], results[0]))
        << lengths.size() << " sequences, the first of " << lengths[0] << ", seed " << kSeed;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
