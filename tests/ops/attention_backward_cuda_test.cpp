// Gradients of attention on the device against the CPU's from the same bf16 inputs.
#include "cpu_context.h"
#include "ops/attention_cuda_problem.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {
namespace {

class AttentionBackwardCuda : public DeviceTest {};

// By tensor: probabilities, their gradients and the results are rounded to bf16, sums are f32.
constexpr double kBound = 1e-2;
constexpr double kFloor = 1e-4;  // of an element, where a gradient cancels to nothing

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
      // Wide heads' kernels serve other sizes, where every query head has a kv head.
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

}  // namespace
}  // namespace slimexx::ops::testing
