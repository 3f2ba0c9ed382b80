// QK-norm, rotation and the write to the KV cache are one op on the device; compares it with the
// ops of the CPU.
#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/op_cases.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::ops::testing {
namespace {

class RotaryCuda : public DeviceTest {};

constexpr float kEps = 1e-5f;
constexpr int64_t kPositions = 300;

struct Case {
  cases::RotaryCase shape;  // `heads` query heads
  int64_t kv_heads;
  bool norm, interleaved;
  std::string name() const {
    return std::to_string(shape.tokens) + " tokens, " + std::to_string(shape.heads) + "+" +
           std::to_string(kv_heads) + " heads of " + std::to_string(shape.dim) + ", " +
           std::to_string(shape.rotary_dim) + " turn, norm " + std::to_string(norm) +
           ", interleaved " + std::to_string(interleaved) + ", seed 1";
  }
};

// The cases of the rotation, those of the per-head norm (without rotation), and sizes that only the
// device test has.
std::vector<Case> all_cases() {
  std::vector<cases::RotaryCase> shapes = cases::rotary_values();
  for (const auto& norms : {cases::norm_values(), cases::norm_gradients()})
    for (const auto& c : norms)
      if (c.heads > 0) shapes.push_back({c.tokens, c.heads, c.size, 0});
  shapes.insert(shapes.end(), {{70, 4, 64, 64}, {33, 8, 128, 128}, {33, 8, 128, 64}});
  std::vector<Case> all;
  for (const auto& c : shapes)
    for (const bool norm : {false, true})
      for (const bool interleaved : {false, true})
        for (const int64_t kv_heads : {int64_t{1}, c.heads})
          all.push_back({c, kv_heads, norm, interleaved});
  return all;
}

struct Problem {
  QkvHeads heads;
  Array in, d, q_norm, k_norm, cos, sin, positions, slots;
  RotaryStyle style;

  explicit Problem(const Case& c)
      : heads{c.shape.heads, c.kv_heads, c.shape.dim},
        cos({kPositions, c.shape.rotary_dim / 2}),
        sin({kPositions, c.shape.rotary_dim / 2}),
        style(c.interleaved ? RotaryStyle::kInterleaved : RotaryStyle::kHalfSplit) {
    const int64_t width = (heads.query_heads + 2 * heads.kv_heads) * heads.head_dim;
    in = random_bf16({c.shape.tokens, width}, 1);
    d = random_bf16({c.shape.tokens, width}, 2);
    if (c.norm) {
      q_norm = random_bf16({heads.head_dim}, 3, 0.3, 1.0);
      k_norm = random_bf16({heads.head_dim}, 4, 0.3, 1.0);
    }
    const int64_t half = c.shape.rotary_dim / 2;
    for (int64_t i = 0; i < cos.size(); ++i) {
      const double angle =
          static_cast<double>(i / half) *
          std::pow(1e4, -static_cast<double>(i % half) / static_cast<double>(half));
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
    std::vector<int32_t> position, slot;
    for (int64_t t = 0; t < c.shape.tokens; ++t) {
      position.push_back(static_cast<int32_t>((t * 17 + 5) % kPositions));
      slot.push_back(t % 5 == 3 ? -1 : static_cast<int32_t>((t * 11 + 2) % num_slots(c)));
    }
    positions = Array::integers(position);
    slots = Array::integers(slot);
  }
  static int64_t num_slots(const Case& c) { return (c.shape.tokens / 16 + 2) * 16 - 1; }
  RotaryTable table() const { return {cos, sin, style}; }
};

bool is_served(const Case& c) { return c.shape.dim % 2 == 0 && c.shape.dim <= 256; }

TEST_F(RotaryCuda, ForwardAgreesWithTheCpu) {
  for (const Case& c : all_cases()) {
    const Problem p(c);
    const OnDevice in(p.in), out(p.d), qn(p.q_norm), kn(p.k_norm),
        cos = as_is(p.cos), sin = as_is(p.sin), positions(p.positions);
    const auto forward = [&](const Context& s) {
      qk_norm_rotary_forward(s, out, in, qn, kn, kEps, {cos, sin, p.style}, positions, {}, p.heads);
    };
    if (!is_served(c)) {
      expect_unserved(forward, c.name());
      continue;
    }
    const Array expected = p.d.clone();
    qk_norm_rotary_forward(cpu_context(), expected, p.in, p.q_norm, p.k_norm, kEps, p.table(),
                           p.positions, {}, p.heads);
    run_op(forward);
    const Array packed = out.back();
    EXPECT_TRUE(within_ulp(packed, expected, 2e-6)) << c.name();
    const int64_t turned = (p.heads.query_heads + p.heads.kv_heads) * p.heads.head_dim;
    const OnDevice narrow(Array({c.shape.tokens, turned}));
    run_op([&](const Context& s) {
      qk_norm_rotary_forward(s, narrow, in, qn, kn, kEps, {cos, sin, p.style}, positions, {},
                             p.heads);
    });
    EXPECT_TRUE(same_bits(narrow.back(), packed.view().columns(0, turned)))
        << "values stay, " << c.name();
    run_op([&](const Context& s) {
      qk_norm_rotary_forward(s, in, in, qn, kn, kEps, {cos, sin, p.style}, positions, {}, p.heads);
    });
    EXPECT_TRUE(same_bits(in.back(), packed)) << "in place, " << c.name();
    const OnDevice raw(p.in), one(Array({1, packed.view().dim(1)}));
    for (int64_t t = 0; t < c.shape.tokens; ++t) {
      run_op([&](const Context& s) {
        qk_norm_rotary_forward(s, one, raw.view().rows(t, t + 1), qn, kn, kEps, {cos, sin, p.style},
                               positions.view().rows(t, t + 1), {}, p.heads);
      });
      ASSERT_TRUE(same_bits(one.back(), packed.view().rows(t, t + 1))) << t << ", " << c.name();
    }
  }
}

// Pages get the bits of the keys and values in the packed `out`.
TEST_F(RotaryCuda, PagesGetTheBitsOfThePackedRows) {
  for (const Case& c : all_cases()) {
    if (!is_served(c)) continue;
    const Problem p(c);
    const int64_t num_pages = c.shape.tokens / 16 + 2, row = c.kv_heads * c.shape.dim,
                  q = c.shape.heads * c.shape.dim;
    Array blank({num_pages, 16, c.kv_heads, c.shape.dim});
    blank.fill(7.0f);
    const OnDevice in(p.in), packed(p.d), out(p.d), qn(p.q_norm), kn(p.k_norm),
        cos = as_is(p.cos), sin = as_is(p.sin), positions(p.positions), slots(p.slots),
        k_pages(blank), v_pages(blank);
    run_op([&](const Context& s) {
      qk_norm_rotary_forward(s, packed, in, qn, kn, kEps, {cos, sin, p.style}, positions, {},
                             p.heads);
    });
    run_op([&](const Context& s) {
      qk_norm_rotary_forward(s, out, in, qn, kn, kEps, {cos, sin, p.style}, positions,
                             {k_pages, v_pages, slots}, p.heads);
    });
    const Array expected = packed.back();
    EXPECT_TRUE(same_bits(out.back().view().columns(0, q), expected.view().columns(0, q)))
        << c.name();
    Array k = blank.clone(), v = blank.clone();
    for (int64_t t = 0; t < c.shape.tokens; ++t) {
      const int64_t slot = p.slots.view().i32()[t];
      if (slot < 0) continue;
      const float* from = expected.view().f32() + t * expected.view().dim(1) + q;
      std::copy_n(from, row, k.view().f32() + slot * row);
      std::copy_n(from + row, row, v.view().f32() + slot * row);
    }
    EXPECT_TRUE(same_bits(k_pages.back(), k)) << "keys, " << c.name();
    EXPECT_TRUE(same_bits(v_pages.back(), v)) << "values, " << c.name();
  }
}

TEST_F(RotaryCuda, GradientsAgreeWithTheCpu) {
  for (const Case& c : all_cases()) {
    const Problem p(c);
    const Array d = p.d.clone(), blank({c.shape.dim});
    const Array dq = c.norm ? blank.clone() : Array(), dk = c.norm ? blank.clone() : Array();
    const OnDevice g(p.d), raw(p.in), qn(p.q_norm), kn(p.k_norm),
        cos = as_is(p.cos), sin = as_is(p.sin), positions(p.positions), gq = as_is(dq),
        gk = as_is(dk);
    const auto backward = [&](const Context& s) {
      qk_norm_rotary_backward(s, g, gq, gk, raw, qn, kn, kEps, {cos, sin, p.style}, positions,
                              p.heads);
    };
    if (!is_served(c)) {
      expect_unserved(backward, c.name());
      continue;
    }
    run_op(backward);
    qk_norm_rotary_backward(cpu_context(), d, dq, dk, p.in, p.q_norm, p.k_norm, kEps, p.table(),
                            p.positions, p.heads);
    EXPECT_TRUE(within_ulp(g.back(), d, 1e-5)) << c.name();
    if (!c.norm) continue;
    EXPECT_TRUE(close_by_norm(gq.back(), dq, 1e-5, 1e-6)) << "dq_norm, " << c.name();
    EXPECT_TRUE(close_by_norm(gk.back(), dk, 1e-5, 1e-6)) << "dk_norm, " << c.name();
  }
}

TEST_F(RotaryCuda, PartsOfTheFusedOpAreTheCpusOnly) {
  const OnDevice x = as_is(Array({2, 3, 8})), w = as_is(Array({8})), rows(Array({2, 3, 8})),
                 two = integers_on_device({0, 1}), pages(Array({2, 4, 3, 8}));
  expect_missing([&](const Context& s) { head_norm_forward(s, x, x, w, kEps); },
                 "head_norm_forward");
  expect_missing([&](const Context& s) { head_norm_backward(s, x, w, x, x, w, kEps); },
                 "head_norm_backward");
  expect_missing([&](const Context& s) { write_kv_pages(s, pages, pages, rows, rows, two); },
                 "write_kv_pages");
}

}  // namespace
}  // namespace slimexx::ops::testing
