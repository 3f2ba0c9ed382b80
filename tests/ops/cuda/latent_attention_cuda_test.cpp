// Latent attention on the device: values against the CPU's from the same bf16 inputs; and equal
// bits for a query in any batch, pages, chunks and segments. Also attention's backward with heads
// of its width.
#include <array>
#include <numeric>

#include "cpu_context.h"
#include "ops/cuda/latent_attention_cuda_problem.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {
namespace {

class LatentAttentionCuda : public DeviceTest {};
class WideAttentionCuda : public DeviceTest {};

constexpr double kForwardBound = 5e-3, kStatisticsBound = 1e-4, kGradientBound = 1e-2;

// Key blocks have 64 keys, segments 2048; tiles have 64 (token, head) rows.
std::vector<LatentCase> latent_cases() {
  return {{{1}, 1, 512, 64},
          {{5, 0, 3}, 20, 512, 64},
          {{64, 65, 1, 129}, 3, 512, 64},
          {{300, 17, 128}, 20, 512, 64},
          {{40, 7}, 128, 512, 64},
          {{33, 70}, 8, 24, 8},
          {{130, 33}, 32, 512, 64},
          {{2047, 1}, 1, 512, 64},
          {{2300, 90}, 2, 512, 64},
          {{4200}, 1, 72, 32}};
}
TEST_F(LatentAttentionCuda, AgreesWithTheCpu) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const OnDevice q(p.q), keys(p.keys), out(p.output()), lse = as_is(p.statistics());
    const PackedLayout packed(p.cu);
    run_op([&](const Context& s) {
      attention_forward(s, out, lse, q, keys, keys, packed.layout(), p.scale);
    });
    const Array expected = p.output(), statistics = p.statistics();
    attention_forward(cpu_context(), expected, statistics, p.q, p.keys, p.keys, {p.cu, {}, {}, 0},
                      p.scale);
    EXPECT_TRUE(close_by_norm(out.back(), expected, kForwardBound)) << name_of(c);
    EXPECT_TRUE(close(lse.back(), doubles(statistics), kStatisticsBound, kStatisticsBound))
        << name_of(c);
  }
}

TEST_F(LatentAttentionCuda, SequenceAloneHasTheBitsOfTheBatch) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const Array batch = forward_packed(p);
    const OnDevice q(p.q), keys(p.keys);
    for (size_t b = 0; b < c.lengths.size(); ++b) {
      const PackedLayout one({0, c.lengths[b]});
      const OnDevice alone(Array({c.lengths[b], c.heads, c.values}));
      const auto rows = [&](const tensor::Tensor& x) { return x.rows(p.cu[b], p.cu[b + 1]); };
      run_op([&](const Context& s) {
        attention_forward(s, alone, {}, rows(q), rows(keys), rows(keys), one.layout(), p.scale);
      });
      EXPECT_TRUE(same_bits(alone.back(), rows(batch))) << "sequence " << b << " of " << name_of(c);
    }
  }
}

TEST_F(LatentAttentionCuda, PagesAndChunksChangeNothing) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const Array packed = forward_packed(p);
    for (const int64_t page_tokens : {16, 64, 128})
      for (const int32_t step : {1, 7, 50, 900}) {
        const int32_t most_chunks = page_tokens == 16 ? 320 : 8;
        if (p.longest() / step > most_chunks) continue;
        for (const int64_t max_split_tokens : {int64_t{INT32_MAX}, int64_t{0}})
          ASSERT_TRUE(same_bits(run_in_chunks(p, page_tokens, step, max_split_tokens), packed))
              << "page " << page_tokens << ", chunks of " << step << ", split up to "
              << max_split_tokens << ", " << name_of(c);
      }
  }
}

// Decode steps of the last query of some sequences; keys lie in pages of 64 tokens.
struct LastDecodes {
  const LatentProblem& p;
  const LatentPages pages;
  const OnDevice page_rows;

  explicit LastDecodes(const LatentProblem& problem)
      : p(problem), pages(problem, 64), page_rows(pages.keys) {
    std::vector<int32_t> slots;
    for (size_t b = 0; b < p.shape.lengths.size(); ++b)
      for (int32_t position = 0; position < p.shape.lengths[b]; ++position)
        slots.push_back(pages.slot(b, position));
    const OnDevice keys(p.keys), own_slots = integers_on_device(slots);
    run_op([&](const Context& s) { write_kv_pages(s, page_rows, {}, keys, {}, own_slots); });
  }

  Array run(const std::vector<size_t>& sequences) const {
    const auto count = static_cast<int64_t>(sequences.size());
    const int64_t row = p.shape.heads * p.width(), columns = pages.per_sequence;
    std::vector<int32_t> cu{0}, context;
    Array table({count, columns}, DType::kI32), q({count, p.shape.heads, p.width()});
    for (int64_t i = 0; i < count; ++i) {
      const size_t b = sequences[static_cast<size_t>(i)];
      cu.push_back(cu.back() + 1);
      context.push_back(p.shape.lengths[b] - 1);
      std::copy_n(pages.table.begin() + static_cast<int64_t>(b) * columns, columns,
                  table.view().i32() + i * columns);
      std::copy_n(p.q.view().f32() + (p.cu[b + 1] - 1) * row, row, q.view().f32() + i * row);
    }
    const OnDevice own_q(q), out(Array({count, p.shape.heads, p.shape.values})),
        device_table(table), device_cu = integers_on_device(cu),
                             device_context = integers_on_device(context);
    const AttentionLayout layout{.cu_seqlens = cu,
                                 .context_lens = context,
                                 .page_table = device_table,
                                 .page_tokens = 64,
                                 .context_is_written = true,
                                 .device_cu_seqlens = device_cu,
                                 .device_context_lens = device_context};
    run_op([&](const Context& s) {
      attention_forward(s, out, {}, own_q, page_rows, page_rows, layout, p.scale);
    });
    return out.back();
  }
};

// Expects row `i` of `got` to equal the last row of sequence b.
void expect_last_row(const LatentProblem& p, const Array& got, int64_t i, const Array& packed,
                     size_t b) {
  const int64_t row = p.shape.heads * p.shape.values;
  for (int64_t e = 0; e < row; ++e)
    ASSERT_EQ(got[i * row + e], packed[(p.cu[b + 1] - 1) * row + e])
        << "sequence " << b << ", element " << e << " of " << name_of(p.shape);
}

// Decodes at the end of long contexts: several segments, split and merged.
TEST_F(LatentAttentionCuda, DecodesOfLongContextsHaveTheBitsOfTraining) {
  const LatentProblem p({{6300, 2048, 2049, 70}, 20, 512, 64});
  const Array packed = forward_packed(p);
  const Array got = LastDecodes(p).run({0, 1, 2, 3});
  for (size_t b = 0; b < 4; ++b) expect_last_row(p, got, static_cast<int64_t>(b), packed, b);
}

// If there are few segments, a cluster of thread blocks computes each; otherwise one thread block
// does. The lengths give full and partial rounds of eight key blocks.
TEST_F(LatentAttentionCuda, DecodesOfFewSequencesHaveTheBitsOfMany) {
  for (const auto& [heads, values, rotary] :
       {std::array<int64_t, 3>{20, 512, 64}, {8, 512, 64}, {32, 448, 64}, {16, 128, 32}}) {
    const LatentProblem p({{1,   63,  64,  65,   128,  448,  511,  512,  513,  575,
                            576, 577, 640, 1023, 1024, 1025, 1500, 2047, 2048, 2100},
                           heads,
                           values,
                           rotary});
    const Array packed = forward_packed(p);
    const LastDecodes decodes(p);
    std::vector<size_t> all(p.shape.lengths.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const Array together = decodes.run(all);
    for (const size_t b : all) {
      expect_last_row(p, together, static_cast<int64_t>(b), packed, b);
      expect_last_row(p, decodes.run({b}), 0, packed, b);
    }
  }
}

TEST_F(LatentAttentionCuda, LaterKeysNeverReachAQuery) {
  const LatentCase c{{200}, 5, 512, 64};
  const LatentProblem p(c);
  LatentProblem spoiled(c);
  constexpr int64_t kFrom = 150;
  for (int64_t i = kFrom * p.width(); i < p.keys.size(); ++i) spoiled.keys[i] = 8192.0f;
  const Array out = forward_packed(p), again = forward_packed(spoiled);
  EXPECT_TRUE(same_bits(again.view().rows(0, kFrom), out.view().rows(0, kFrom)));
  EXPECT_FALSE(same_bits(again.view().rows(kFrom, 200), out.view().rows(kFrom, 200)));
}

struct WideCase {
  std::vector<int32_t> lengths;
  int64_t heads, dim, values;
};

TEST_F(WideAttentionCuda, GradientsAgreeWithTheCpuAndRepeat) {
  const std::vector<WideCase> cases = {{{1}, 1, 256, 256},
                                       {{5, 0, 3}, 3, 256, 256},
                                       {{64, 65, 1, 129}, 4, 192, 128},
                                       {{300, 17, 128}, 20, 256, 256},
                                       {{33, 70}, 8, 24, 16},
                                       {{700, 40}, 2, 192, 128},
                                       {{130}, 3, 96, 72},
                                       {{200, 3}, 2, 128, 64}};
  for (const WideCase& c : cases) {
    std::vector<int32_t> cu{0};
    std::string name = std::to_string(c.heads) + " heads of " + std::to_string(c.dim) + " and " +
                       std::to_string(c.values) + ", seed 31, lengths";
    for (const int32_t length : c.lengths) {
      cu.push_back(cu.back() + length);
      name += " " + std::to_string(length);
    }
    const int64_t tokens = cu.back();
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
    const Array q = random_bf16({tokens, c.heads, c.dim}, 31),
                k = random_bf16({tokens, c.heads, c.dim}, 32),
                v = random_bf16({tokens, c.heads, c.values}, 33),
                dout = random_bf16({tokens, c.heads, c.values}, 34);
    const Array out({tokens, c.heads, c.values}), lse({tokens, c.heads});
    attention_forward(cpu_context(), out, lse, q, k, v, {cu, {}, {}, 0}, scale);
    const Array out_rounded = rounded(out);
    const Array dq({tokens, c.heads, c.dim}), dk({tokens, c.heads, c.dim}),
        dv({tokens, c.heads, c.values});
    attention_backward(cpu_context(), dq, dk, dv, dout, q, k, v, out_rounded, lse, {cu, {}, {}, 0},
                       scale);
    const OnDevice own_q(q), own_k(k), own_v(v), own_dout(dout), own_out(out_rounded),
        own_lse = as_is(lse);
    const PackedLayout packed(cu);
    Array first[3];
    for (int run = 0; run < 2; ++run) {
      const OnDevice own_dq(dq.clone()), own_dk(dk.clone()), own_dv(dv.clone());
      run_op([&](const Context& s) {
        attention_backward(s, own_dq, own_dk, own_dv, own_dout, own_q, own_k, own_v, own_out,
                           own_lse, packed.layout(), scale);
      });
      const Array got[3] = {own_dq.back(), own_dk.back(), own_dv.back()};
      const Array* expected[3] = {&dq, &dk, &dv};
      for (int i = 0; i < 3; ++i) {
        if (run == 0) {
          EXPECT_TRUE(close_by_norm(got[i], *expected[i], kGradientBound, 1e-6))
              << "gradient " << i << " (q, k, v) of " << name;
          first[i] = got[i];
        } else {
          EXPECT_TRUE(same_bits(got[i], first[i])) << "gradient " << i << " of " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
