// Attention over selected keys on the device: values against the CPU's from the same bf16 inputs;
// the bits of full attention if all keys are selected; equal bits for any batch, pages and chunks;
// and gradients of expanded heads.
#include "cpu_context.h"
#include "ops/cuda/latent_attention_cuda_problem.h"

namespace slimexx::ops::testing {
namespace {

class SparseAttentionCuda : public DeviceTest {};

constexpr double kForwardBound = 5e-3, kStatisticsBound = 1e-4, kGradientBound = 1e-2;

// Selects `k` random keys of 0 .. position for `row`, by selection sampling; all keys if there are
// at most k.
void draw_keys(const Array& ids, int64_t row, int32_t position, PhiloxStream& random) {
  const int64_t k = ids.view().dim(1);
  int32_t* own = ids.view().i32() + row * k;
  std::fill(own, own + k, -1);
  int64_t needed = std::min<int64_t>(k, position + 1);
  for (int32_t key = 0; needed > 0; ++key)
    if (static_cast<int64_t>(random.next_below(static_cast<uint64_t>(position - key + 1))) <
        needed) {
      *own++ = key;
      --needed;
    }
}

Array draw_lists(const std::vector<int32_t>& cu, int64_t k) {
  Array ids({cu.back(), k}, DType::kI32);
  PhiloxStream random(8, 2);
  for (size_t b = 0; b + 1 < cu.size(); ++b)
    for (int32_t row = cu[b]; row < cu[b + 1]; ++row) draw_keys(ids, row, row - cu[b], random);
  return ids;
}

AttentionLayout with(AttentionLayout layout, const tensor::Tensor& selected) {
  layout.selected = selected;
  return layout;
}

struct SparseCase {
  LatentCase latent;
  int64_t k;
};
std::string name_of(const SparseCase& c) {
  return std::to_string(c.k) + " keys each, " + testing::name_of(c.latent);
}
LatentProblem make_problem(const SparseCase& c) {
  LatentProblem p(c.latent);
  p.selected = draw_lists(p.cu, c.k);
  return p;
}

// Blocks have 64 list entries, segments 2048; tiles have 64 heads of one token.
std::vector<SparseCase> sparse_cases() {
  return {{{{1}, 4, 512, 64}, 1},
          {{{5, 0, 3}, 20, 512, 64}, 2},
          {{{64, 65, 1, 129}, 4, 512, 64}, 63},
          {{{300, 17, 128}, 20, 512, 64}, 64},
          {{{140, 70}, 64, 512, 64}, 65},
          {{{33, 70}, 8, 24, 8}, 8},
          {{{40, 7}, 128, 512, 64}, 24},
          {{{130}, 64, 512, 64}, 2048},
          {{{200, 90}, 66, 72, 32}, 100},
          {{{2300, 90}, 4, 512, 64}, 2047},
          {{{4200}, 1, 512, 64}, 2048},
          {{{4200}, 1, 72, 32}, 3000}};
}

TEST_F(SparseAttentionCuda, AgreesWithTheCpu) {
  for (const SparseCase& c : sparse_cases()) {
    const LatentProblem p = make_problem(c);
    const OnDevice q(p.q), keys(p.keys), out(p.output()), lse = as_is(p.statistics()),
                                                          selected(p.selected);
    const PackedLayout packed(p.cu);
    run_op([&](const Context& s) {
      attention_forward(s, out, lse, q, keys, keys, with(packed.layout(), selected), p.scale);
    });
    const Array expected = p.output(), statistics = p.statistics();
    attention_forward(cpu_context(), expected, statistics, p.q, p.keys, p.keys,
                      with({p.cu, {}, {}, 0}, p.selected), p.scale);
    EXPECT_TRUE(close_by_norm(out.back(), expected, kForwardBound)) << name_of(c);
    EXPECT_TRUE(close(lse.back(), doubles(statistics), kStatisticsBound, kStatisticsBound))
        << name_of(c);
  }
}

TEST_F(SparseAttentionCuda, ListsOfAllKeysHaveTheBitsOfNone) {
  const std::vector<LatentCase> cases = {{{1, 63, 64, 65}, 4, 512, 64}, {{300, 17}, 20, 512, 64},
                                         {{200}, 64, 512, 64},          {{130, 5}, 128, 512, 64},
                                         {{33, 70}, 8, 24, 8},          {{2047, 2048}, 2, 512, 64},
                                         {{4200}, 1, 512, 64}};
  for (const LatentCase& c : cases)
    for (const int64_t more : {0, 37}) {
      LatentProblem p(c);
      const Array full = forward_packed(p);
      p.selected = draw_lists(p.cu, p.longest() + more);
      EXPECT_TRUE(same_bits(forward_packed(p), full))
          << "lists of " << p.longest() + more << ", " << testing::name_of(c);
    }
}

TEST_F(SparseAttentionCuda, PagesChunksAndTheBatchChangeNothing) {
  for (const SparseCase& c : sparse_cases()) {
    const LatentProblem p = make_problem(c);
    const Array packed = forward_packed(p);
    for (const int64_t page_tokens : {16, 64, 128})
      for (const int32_t step : {1, 7, 50, 900}) {
        if (p.longest() / step > (page_tokens == 16 ? 140 : 8)) continue;
        ASSERT_TRUE(same_bits(run_in_chunks(p, page_tokens, step, INT32_MAX), packed))
            << "page " << page_tokens << ", chunks of " << step << ", " << name_of(c);
      }
    const OnDevice q(p.q), keys(p.keys), selected(p.selected);
    for (size_t b = 0; b < c.latent.lengths.size(); ++b) {
      const int32_t length = c.latent.lengths[b];
      const PackedLayout one({0, length});
      const OnDevice alone(Array({length, c.latent.heads, c.latent.values}));
      const auto rows = [&](const tensor::Tensor& x) { return x.rows(p.cu[b], p.cu[b + 1]); };
      run_op([&](const Context& s) {
        attention_forward(s, alone, {}, rows(q), rows(keys), rows(keys),
                          with(one.layout(), rows(selected)), p.scale);
      });
      EXPECT_TRUE(same_bits(alone.back(), rows(packed)))
          << "sequence " << b << " of " << name_of(c);
    }
  }
}

// Queries from kMost on see a selection, which never includes key kHidden.
TEST_F(SparseAttentionCuda, KeysThatAreNotSeenNeverReachAQuery) {
  constexpr int64_t kMost = 30, kLength = 200;
  constexpr int32_t kHidden = 20;
  LatentProblem p = make_problem({{{kLength}, 5, 512, 64}, kMost});
  for (int64_t row = kMost; row < kLength; ++row) {
    int32_t* const own = p.selected.view().i32() + row * kMost;
    int32_t* const hidden = std::find(own, own + kMost, kHidden);
    if (hidden == own + kMost) continue;
    int32_t other = 0;
    while (std::find(own, own + kMost, other) != own + kMost) ++other;
    *hidden = other;
    std::sort(own, own + kMost);
  }
  const Array out = forward_packed(p);
  for (int64_t i = 0; i < p.width(); ++i) p.keys[kHidden * p.width() + i] = std::nanf("");
  const Array again = forward_packed(p);
  EXPECT_TRUE(same_bits(again.view().rows(kMost, kLength), out.view().rows(kMost, kLength)));
  EXPECT_FALSE(same_bits(again.view().rows(0, kMost), out.view().rows(0, kMost)));
}

// All rows of a problem in their pages, on the CPU and on the GPU.
struct FilledPages {
  LatentPages pages;
  Array table;
  OnDevice device_table, device_keys;

  FilledPages(const LatentProblem& p, int64_t page_tokens) : pages(p, page_tokens) {
    const auto num_sequences = static_cast<int64_t>(p.shape.lengths.size());
    table = Array({num_sequences, pages.per_sequence}, DType::kI32);
    std::copy(pages.table.begin(), pages.table.end(), table.view().i32());
    std::vector<int32_t> slots;
    for (size_t b = 0; b < p.shape.lengths.size(); ++b)
      for (int32_t at = 0; at < p.shape.lengths[b]; ++at) slots.push_back(pages.slot(b, at));
    write_kv_pages(cpu_context(), pages.keys, {}, p.keys, {}, Array::integers(slots));
    device_table = OnDevice(table);
    device_keys = OnDevice(pages.keys);
  }
};

// One query at the end of each of several contexts. Their lengths may be known only on the device.
TEST_F(SparseAttentionCuda, DecodesOfLongContextsAgreeWithTheCpu) {
  const std::vector<int32_t> lengths = {6000, 2048, 1, 2049, 65, 5999};
  const auto count = static_cast<int64_t>(lengths.size());
  std::vector<int32_t> cu{0}, context;
  for (const int32_t length : lengths) {
    cu.push_back(cu.back() + 1);
    context.push_back(length - 1);
  }
  const LatentProblem p({lengths, 1, 512, 64});
  const FilledPages small(p, 16), large(p, 64);
  const OnDevice device_cu = integers_on_device(cu), device_context = integers_on_device(context);
  for (const int64_t heads : {4, 20, 64, 128})
    for (const int64_t k : {1, 63, 64, 65, 2047, 2048}) {
      const std::string name = std::to_string(heads) + " heads, lists of " + std::to_string(k);
      const Array q = random_bf16({count, heads, p.width()}, 5);
      const Array lists({count, k}, DType::kI32), output({count, heads, p.shape.values});
      PhiloxStream random(9, 1);
      for (int64_t b = 0; b < count; ++b)
        draw_keys(lists, b, context[static_cast<size_t>(b)], random);
      const OnDevice own_q(q), selected(lists);
      const auto run = [&](const FilledPages& paged, bool lengths_on_host) {
        const OnDevice out(output);
        AttentionLayout layout{.cu_seqlens = {},
                               .context_lens = {},
                               .page_table = paged.device_table,
                               .page_tokens = paged.pages.page_tokens,
                               .device_cu_seqlens = device_cu,
                               .device_context_lens = device_context,
                               .selected = selected};
        if (lengths_on_host) {
          layout.cu_seqlens = cu;
          layout.context_lens = context;
        } else {
          layout.max_query_len = 1;
          layout.max_key_len = 6016;
        }
        run_op([&](const Context& s) {
          attention_forward(s, out, {}, own_q, paged.device_keys, paged.device_keys, layout,
                            p.scale);
        });
        return out.back();
      };
      const Array got = run(small, true);
      EXPECT_TRUE(same_bits(run(large, false), got)) << name;
      attention_forward(cpu_context(), output, {}, q, small.pages.keys, small.pages.keys,
                        {.cu_seqlens = cu,
                         .context_lens = context,
                         .page_table = small.table,
                         .page_tokens = 16,
                         .selected = lists},
                        p.scale);
      EXPECT_TRUE(close_by_norm(got, output, kForwardBound)) << name;
    }
}

struct GradientCase {
  std::vector<int32_t> lengths;
  int64_t heads, dim, values, k;
};
std::string name_of(const GradientCase& c) {
  std::string name = std::to_string(c.heads) + " heads of " + std::to_string(c.dim) + " and " +
                     std::to_string(c.values) + ", lists of " + std::to_string(c.k) +
                     ", seed 31, lengths";
  for (const int32_t length : c.lengths) name += " " + std::to_string(length);
  return name;
}

struct GradientProblem {
  std::vector<int32_t> cu{0};
  Array q, k, v, dout, out, lse, lists;
  float scale;

  explicit GradientProblem(const GradientCase& c)
      : scale(1.0f / std::sqrt(static_cast<float>(c.dim))) {
    for (const int32_t length : c.lengths) cu.push_back(cu.back() + length);
    const int64_t tokens = cu.back();
    q = random_bf16({tokens, c.heads, c.dim}, 31);
    k = random_bf16({tokens, c.heads, c.dim}, 32);
    v = random_bf16({tokens, c.heads, c.values}, 33);
    dout = random_bf16({tokens, c.heads, c.values}, 34);
    lists = draw_lists(cu, c.k);
    const Array exact({tokens, c.heads, c.values});
    lse = Array({tokens, c.heads});
    attention_forward(cpu_context(), exact, lse, q, k, v, on_cpu(), scale);
    out = rounded(exact);
  }
  AttentionLayout on_cpu() const { return with({cu, {}, {}, 0}, lists); }
};
struct ThreeGradients {
  Array q, k, v;
};
ThreeGradients shaped_like(const GradientProblem& p) {
  return {p.q.clone(), p.k.clone(), p.v.clone()};
}

ThreeGradients run_backward(const GradientProblem& p, bool has_lists) {
  const OnDevice q(p.q), k(p.k), v(p.v), dout(p.dout), out(p.out), lse = as_is(p.lse), dq(p.q),
                                                                   dk(p.k), dv(p.v), lists(p.lists);
  const PackedLayout packed(p.cu);
  const AttentionLayout layout = has_lists ? with(packed.layout(), lists) : packed.layout();
  run_op([&](const Context& s) {
    attention_backward(s, dq, dk, dv, dout, q, k, v, out, lse, layout, p.scale);
  });
  return {dq.back(), dk.back(), dv.back()};
}

TEST_F(SparseAttentionCuda, GradientsAgreeWithTheCpuAndRepeat) {
  const std::vector<GradientCase> cases = {{{1}, 1, 256, 256, 1},
                                           {{5, 0, 3}, 3, 256, 256, 2},
                                           {{64, 65, 1, 129}, 4, 192, 128, 63},
                                           {{300, 17, 128}, 20, 256, 256, 64},
                                           {{33, 70}, 8, 24, 16, 8},
                                           {{700, 40}, 2, 192, 128, 65},
                                           {{130}, 64, 96, 72, 100},
                                           {{200, 3}, 2, 128, 128, 50},
                                           {{2500, 90}, 1, 256, 256, 700},
                                           {{4300}, 1, 24, 16, 2048}};
  for (const GradientCase& c : cases) {
    const GradientProblem p(c);
    const ThreeGradients expected = shaped_like(p);
    attention_backward(cpu_context(), expected.q, expected.k, expected.v, p.dout, p.q, p.k, p.v,
                       p.out, p.lse, p.on_cpu(), p.scale);
    const ThreeGradients got = run_backward(p, true), again = run_backward(p, true);
    EXPECT_TRUE(close_by_norm(got.q, expected.q, kGradientBound, 1e-6)) << "dq, " << name_of(c);
    EXPECT_TRUE(close_by_norm(got.k, expected.k, kGradientBound, 1e-6)) << "dk, " << name_of(c);
    EXPECT_TRUE(close_by_norm(got.v, expected.v, kGradientBound, 1e-6)) << "dv, " << name_of(c);
    EXPECT_TRUE(same_bits(again.q, got.q) && same_bits(again.k, got.k) && same_bits(again.v, got.v))
        << name_of(c);
  }
}

TEST_F(SparseAttentionCuda, GradientsOfListsOfAllKeysHaveTheBitsOfNone) {
  for (const GradientCase& c :
       {GradientCase{{300, 64, 65, 1}, 3, 256, 256, 300}, GradientCase{{33, 70}, 8, 24, 16, 99},
        GradientCase{{2300}, 1, 192, 128, 2304}}) {
    const GradientProblem p(c);
    const ThreeGradients full = run_backward(p, false), got = run_backward(p, true);
    EXPECT_TRUE(same_bits(got.q, full.q)) << "dq, " << name_of(c);
    EXPECT_TRUE(same_bits(got.k, full.k)) << "dk, " << name_of(c);
    EXPECT_TRUE(same_bits(got.v, full.v)) << "dv, " << name_of(c);
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
