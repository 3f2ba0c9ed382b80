// The fused LM head, bit by bit against the unfused reference with logits in memory (launch_gemm in
// f32, normalize_logits, gather_log_probs, log_probs_backward), and both against a product and a
// log-softmax in double on the host. Every call runs twice. Rows of a large call must equal calls
// of few rows. The gradient from kept logits, in its own array or over the logits, must equal the
// reference too.
//
//   lm_head_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "slimexx/kernels/lm_head.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/lm_head_compare.cuh"
#include "tests/kernels/lm_head_kept.cuh"
#include "tests/kernels/lm_head_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

void check_forward(const Expected& e, int64_t rows, bool entropies) {
  const Case& c = e.c;
  const Outputs out(rows);
  const auto bytes =
      static_cast<int64_t>(lm_head_forward_workspace(rows, c.vocabulary, c.k, entropies));
  DeviceArray<uint8_t> workspace(bytes + kGuard);
  workspace.set_bytes(0xff);
  launch_forward(e, rows, entropies, out, workspace.data(), nullptr);
  const std::string name = name_case(c, rows) + (entropies ? " entropies" : "");
  compare_outputs(name, out, e, rows, entropies);
  const std::vector<uint8_t> used = to_host(workspace);
  ++comparisons;
  if (std::any_of(used.end() - kGuard, used.end(), [](uint8_t v) { return v != 0xff; })) {
    ++failures;
    std::printf("FAIL %s: written behind the workspace\n", name.c_str());
  }
}

void launch_backward(const Expected& e, const Gradient& g, bool entropies) {
  const Case& c = e.c;
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(lm_head_backward_workspace(g.rows, c.vocabulary, c.k)) + 16);
  const LmHeadBackwardArgs args = {{e.hidden.data(), e.w.data(), g.rows, c.vocabulary, c.k},
                                   describe_gradient(e, entropies, g.d.data(), g.stride),
                                   workspace.data()};
  require_queued(lm_head_backward_logits(args, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
}

void check_backward(const Expected& e, int64_t rows, bool entropies) {
  const int64_t gap = rows % 2 == 0 ? 0 : 16;
  const Gradient got(e, rows, gap), expected(e, rows, gap);
  launch_backward(e, got, entropies);
  expected.fill(e, entropies);
  compare_gradients(e, rows, entropies, {got.d.data(), got.stride, got.d.count()}, expected);
}

// For each count, checks the first rows of a case with and without entropies, each call twice.
void check_case(const Case& c, const std::vector<int64_t>& counts) {
  const Expected e(c);
  for (const int64_t rows : counts) {
    for (const bool entropies : {true, false, true}) {
      check_forward(e, rows, entropies);
      check_backward(e, rows, entropies);
      check_kept(e, rows, entropies);
    }
  }
}

// One row in double: the exact results and gradients.
struct TrueRow {
  std::vector<double> z;
  double lse = 0, entropy = 0;

  TrueRow(const Expected& e, const std::vector<__nv_bfloat16>& hidden,
          const std::vector<__nv_bfloat16>& w, int64_t row) {
    const Case& c = e.c;
    double maximum = -std::numeric_limits<double>::infinity();
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      double sum = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        sum += static_cast<double>(__bfloat162float(hidden[static_cast<size_t>(row * c.k + i)])) *
               static_cast<double>(__bfloat162float(w[static_cast<size_t>(v * c.k + i)]));
      }
      z.push_back(sum / static_cast<double>(c.temperature));
      maximum = std::max(maximum, z.back());
    }
    double sum = 0, weighted = 0;
    for (const double value : z) {
      sum += std::exp(value - maximum);
      weighted += std::exp(value - maximum) * (value - maximum);
    }
    lse = maximum + std::log(sum);
    entropy = std::log(sum) - weighted / sum;
  }
};

void expect_near(const Case& c, const char* what, int64_t row, int64_t column, double got,
                 double expected, double tolerance) {
  ++comparisons;
  if (std::abs(got - expected) <= tolerance) return;
  if (++failures > 40) return;
  std::printf("FAIL %s: %s row %ld column %ld: %.9g, in double %.9g\n",
              name_case(c, c.rows).c_str(), what, long(row), long(column), got, expected);
}

// z may differ by a few ulps of the product's partial sums, and p by the same relative error.
// dlogits are rounded to bf16 once, by up to one part in 256.
void check_values(const Case& c) {
  const Expected e(c);
  const Outputs out(c.rows);
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(lm_head_forward_workspace(c.rows, c.vocabulary, c.k, true)));
  require_queued(lm_head_forward({{e.hidden.data(), e.w.data(), c.rows, c.vocabulary, c.k},
                                  e.targets.data(),
                                  c.temperature,
                                  out.log_probs.data(),
                                  out.lse.data(),
                                  out.entropies.data(),
                                  workspace.data()},
                                 nullptr));
  const Gradient g(e, c.rows, 0);
  launch_backward(e, g, true);
  const std::vector<__nv_bfloat16> hidden = to_host(e.hidden), w = to_host(e.w), d = to_host(g.d);
  const std::vector<float> log_probs = to_host(out.log_probs), lse = to_host(out.lse),
                           entropies = to_host(out.entropies), dlp = to_host(e.dlog_probs),
                           dh = to_host(e.dentropies);
  const std::vector<int32_t> targets = to_host(e.targets);
  constexpr double kNear = 1e-5;
  for (int64_t row = 0; row < c.rows; row += 3) {
    const auto r = static_cast<size_t>(row);
    const TrueRow truth(e, hidden, w, row);
    expect_near(c, "lse", row, -1, lse[r], truth.lse, kNear);
    expect_near(c, "entropy", row, -1, entropies[r], truth.entropy, kNear);
    const bool inside = targets[r] >= 0 && targets[r] < c.vocabulary;
    if (inside) {
      expect_near(c, "log_prob", row, targets[r], log_probs[r],
                  truth.z[static_cast<size_t>(targets[r])] - truth.lse, kNear);
    } else {
      expect_near(c, "log_prob of no column", row, targets[r], std::isnan(log_probs[r]), 1, 0);
    }
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      const double log_p = truth.z[static_cast<size_t>(v)] - truth.lse, p = std::exp(log_p);
      const double sum = double(dlp[r]) * (double(v == targets[r]) - p) -
                         double(dh[r]) * p * (log_p + truth.entropy);
      const double expected = sum / double(c.temperature);
      const double got = double(__bfloat162float(d[static_cast<size_t>(row * g.stride + v)]));
      expect_near(c, "dlogits", row, v, got, expected,
                  std::abs(expected) / 250 + 2e-5 * p * (std::abs(log_p) + 4));
    }
  }
}

void expect_fault(const char* what, const char* fault) {
  ++comparisons;
  if (fault != nullptr) return;
  ++failures;
  std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const DeviceArray<float> memory(1 << 16);
  float* const p = memory.data();
  const auto* const targets = reinterpret_cast<const int32_t*>(p);
  const LmHeadForwardArgs good = {{p, p, 1, 64, 64}, targets, 1.0f, p, p, p, p};
  const auto forward = [&good](const char* what, auto change) {
    LmHeadForwardArgs args = good;
    change(args);
    expect_fault(what, lm_head_forward(args, nullptr));
  };
  forward("negative rows", [](auto& a) { a.product.rows = -1; });
  forward("no vocabulary", [](auto& a) { a.product.vocabulary = 0; });
  forward("temperature 0", [](auto& a) { a.temperature = 0; });
  forward("temperature NaN", [](auto& a) { a.temperature = std::nanf(""); });
  forward("null targets", [](auto& a) { a.targets = nullptr; });
  forward("null lse", [](auto& a) { a.lse = nullptr; });
  forward("null workspace", [](auto& a) { a.workspace = nullptr; });
  forward("misaligned w", [p](auto& a) { a.product.w = p + 1; });
  forward("misaligned logits", [p](auto& a) { a.logits = p + 1; });
  forward("logits of 65 columns", [p](auto& a) { a.logits = p, a.product.vocabulary = 65; });
  check_kept_refusals(p);
  LmHeadBackwardArgs back = {{p, p, 1, 64, 64}, {targets, 1.0f, p, p, p, p, p, 0}, nullptr};
  LmHeadGradient& gradient = back.gradient;
  gradient.dentropies = nullptr;
  expect_fault("entropies alone", lm_head_backward_logits(back, nullptr));
  gradient.dentropies = p;
  gradient.dlogits_stride = 68;
  expect_fault("stride of 68", lm_head_backward_logits(back, nullptr));
  gradient.dlogits_stride = 56;
  expect_fault("stride below the vocabulary", lm_head_backward_logits(back, nullptr));
  back.product.vocabulary = 65;
  gradient.dlogits_stride = 72;
  expect_fault("null workspace where logits are wanted", lm_head_backward_logits(back, nullptr));
  ++comparisons;
  LmHeadForwardArgs nothing = good;
  nothing.product.rows = 0;
  if (lm_head_forward(nothing, nullptr) != nullptr) {
    ++failures;
    std::printf("FAIL: no rows were refused\n");
  }
}

void check_small() {
  for (const float temperature : {1.0f, 0.6f}) {
    check_case({130, 264, 72, temperature, Rows::kNormal}, {1, 130});
    check_case({129, 520, 72, temperature, Rows::kExtreme}, {7, 129});
    check_case({9, 261, 20, temperature, Rows::kNormal}, {9});
  }
}

void check_all() {
  for (const float temperature : {1.0f, 0.6f, 1.7f}) {
    for (const int64_t vocabulary : {8, 256, 257 * 8, 1000, 5000}) {
      check_case({1000, vocabulary, 136, temperature, Rows::kNormal}, {1, 7, 128, 129, 1000});
    }
    check_case({300, 5000, 520, temperature, Rows::kExtreme}, {1, 7, 128, 129, 300});
    check_case({300, 151936, 136, temperature, Rows::kExtreme}, {300});
    check_case({1000, 151936, 136, temperature, Rows::kNormal}, {1, 7, 128, 129, 1000});
    check_case({200, 257, 136, temperature, Rows::kNormal}, {1, 200});
    check_case({200, 1001, 60, temperature, Rows::kExtreme}, {7, 200});
    check_values({129, 1000, 136, temperature, Rows::kNormal});
    check_values({40, 5000, 72, temperature, Rows::kNormal});
    check_values({40, 777, 72, temperature, Rows::kNormal});
  }
  for (const float temperature : {0x1p-10f, 0x1.5p-10f, 0x1.fffffep-1f, 0x1.fffffep9f}) {
    check_case({300, 5000, 136, temperature, Rows::kExtreme}, {1, 300});
    check_case({300, 5000, 136, temperature, Rows::kNormal}, {1, 300});
  }
  for (const Values values : kFiniteValues)
    check_case({300, 5000, 1032, 0.6f, Rows::kNormal, values}, {1, 7, 128, 129, 300});
  check_case({65536, 1544, 64, 1.0f, Rows::kNormal}, {65536});
  check_case({4096, 7001, 8, 0.6f, Rows::kNormal}, {4096});  // logits of several chunks
  check_case({512, 151552, 4096, 1.0f, Rows::kNormal}, {1, 200, 512});
  // Kept logits of more than 2^32 bytes.
  check_case({8191, 151936, 64, 1.0f, Rows::kNormal}, {8191});
}

int run(bool small) {
  check_refusals();
  small ? check_small() : check_all();
  std::printf("lm_head_check: %d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv) != CheckSize::kAll);
}
