// Compares gradients of attention on the device with the CPU's, from the same bf16 inputs.
#include "cpu_context.h"
#include "ops/cuda/attention_cuda_problem.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {
namespace {

class AttentionBackwardCuda : public DeviceTest {};

// Relative error over a tensor: probabilities, their gradients and the results are rounded to bf16;
// sums are f32.
constexpr double kBound = 1e-2;
constexpr double kFloor = 1e-4;  // absolute error per element, for gradients that cancel

TEST_F(AttentionBackwardCuda, AgreesWithTheCpuAndHasTheSameBitsEveryTime) {
  for (const auto& c : attention_cases()) {
    const AttentionProblem p(c);
    const OnDevice q(p.q), k(p.k), v(p.v), dout(p.dout), out(p.output()),
        lse = as_is(p.statistics());
    Array blank_q = p.q.clone(), blank_k = p.k.clone();
    blank_q.fill(std::nanf(""));
    blank_k.fill(std::nanf(""));
    const OnDevice dq(blank_q), dk(blank_k), dv(blank_k);
    const PackedLayout packed(p.cu);
    const auto backward = [&](const Context& s) {
      attention_backward(s, dq, dk, dv, dout, q, k, v, out, lse, packed.layout(), p.scale);
    };
    if (!is_served(c)) {
      // Other head sizes use the kernels for wide heads, which need one kv head per query head.
      if (c.query_heads != c.kv_heads) expect_unserved(backward, name_of(c));
      continue;
    }
    run_op([&](const Context& s) {
      attention_forward(s, out, lse, q, k, v, packed.layout(), p.scale);
    });
    run_op(backward);
    const std::vector<Array> got{dq.back(), dk.back(), dv.back()};
    run_op(backward);
    EXPECT_TRUE(same_bits(dq.back(), got[0]) && same_bits(dk.back(), got[1]) &&
                same_bits(dv.back(), got[2]))
        << name_of(c);
    const Array eo = p.output(), el = p.statistics(), eq = blank_q, ek = blank_k,
                ev = blank_k.clone();
    attention_forward(cpu_context(), eo, el, p.q, p.k, p.v, p.on_cpu(), p.scale);
    attention_backward(cpu_context(), eq, ek, ev, p.dout, p.q, p.k, p.v, eo, el, p.on_cpu(),
                       p.scale);
    EXPECT_TRUE(close_by_norm(got[0], eq, kBound, kFloor)) << "dq, " << name_of(c);
    EXPECT_TRUE(close_by_norm(got[1], ek, kBound, kFloor)) << "dk, " << name_of(c);
    EXPECT_TRUE(close_by_norm(got[2], ev, kBound, kFloor)) << "dv, " << name_of(c);
  }
}

// The queries in two spans of each sequence.
struct OwnQueries {
  std::vector<int32_t> spans;  // [B,4]
  std::vector<bool> own;       // [T]
  // Parts 1 and 4 of 6, the share of one rank in context parallelism.
  explicit OwnQueries(const std::vector<int32_t>& cu) : own(static_cast<size_t>(cu.back())) {
    for (size_t b = 0; b + 1 < cu.size(); ++b) {
      const int32_t length = cu[b + 1] - cu[b];
      for (const int32_t part : {1, 4}) {
        const int32_t begin = length * part / 6, end = length * (part + 1) / 6;
        spans.insert(spans.end(), {begin, end});
        for (int32_t p = begin; p < end; ++p) own[static_cast<size_t>(cu[b] + p)] = true;
      }
    }
  }
  Array zeros_elsewhere(const Array& rows) const {
    Array kept = rows.clone();
    const int64_t width = rows.size() / std::max<int64_t>(1, std::ssize(own));
    for (int64_t i = 0; i < rows.size(); ++i)
      if (!own[static_cast<size_t>(i / width)]) kept[i] = 0;
    return kept;
  }
};

int64_t count_different(const Array& a, const Array& b) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

// Queries outside the spans are skipped. The result has the bits that zero gradients in their rows
// would give.
TEST_F(AttentionBackwardCuda, SpansOfQueriesHaveTheBitsOfZerosElsewhere) {
  std::vector<cases::AttentionCase> all = {{{700, 1, 390}, 8, 2, 64},  {{513, 64}, 6, 1, 128},
                                           {{130, 900, 5}, 2, 2, 128}, {{700, 1, 390}, 3, 3, 96},
                                           {{64, 129}, 2, 2, 256},     {{31, 2, 3}, 4, 4, 72}};
  for (const auto& c : all) {
    const AttentionProblem p(c);
    const OwnQueries queries(p.cu);
    const Array whole_out = p.output(), whole_lse = p.statistics();
    attention_forward(cpu_context(), whole_out, whole_lse, p.q, p.k, p.v, p.on_cpu(), p.scale);
    const auto kept = [&](const Array& rows) { return queries.zeros_elsewhere(rows); };
    const OnDevice q(kept(p.q)), k(p.k), v(p.v), dout(kept(p.dout)), out(kept(rounded(whole_out))),
        lse = as_is(kept(whole_lse));
    Array blank_q = p.q.clone(), blank_k = p.k.clone();
    blank_q.fill(std::nanf(""));
    blank_k.fill(std::nanf(""));
    const PackedLayout packed(p.cu);
    const Array table = Array::integers(queries.spans);
    const OnDevice spans = as_is(table);
    const auto run = [&](bool with_spans) {
      const OnDevice dq(blank_q), dk(blank_k), dv(blank_k);
      AttentionLayout layout = packed.layout();
      if (with_spans) layout.query_spans = spans.view().reshaped({std::ssize(p.cu) - 1, 4});
      run_op([&](const Context& s) {
        attention_backward(s, dq, dk, dv, dout, q, k, v, out, lse, layout, p.scale);
      });
      return std::vector<Array>{kept(dq.back()), dk.back(), dv.back()};
    };
    const std::vector<Array> some = run(true), zeros = run(false);
    for (size_t i = 0; i < some.size(); ++i)
      EXPECT_EQ(count_different(some[i], zeros[i]), 0) << name_of(c) << ", gradient " << i;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
