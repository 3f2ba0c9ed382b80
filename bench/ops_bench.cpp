// Times the CPU ops at the sizes of tests/ops/op_cases.h: GF/s or GB/s, and the share of the
// limiting peak (multiply-adds or memory bandwidth, both measured first).
//   ops_bench [threads] [instruction set] [part of a name]
#include <fmt/core.h>

#include <time.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "cpu_context.h"
#include "ops/array.h"
#include "ops/cpu/isa/isa.h"
#include "ops/op_cases.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/optimizer.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::ops::bench {
namespace {

using tensor::DType;
using testing::Array;

struct Bounds {
  double gflops, gbytes;
  std::string filter;
};

// With one thread this is the thread's CPU time, which other load on the host disturbs least.
double now_seconds() {
  timespec t{};
  clock_gettime(num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of_best(const std::function<void()>& work) {
  double best = 1e30, total = 0.0;
  for (int i = 0; i < 30 && (i < 3 || total < 0.5); ++i) {
    const double start = now_seconds();
    work();
    const double seconds = now_seconds() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// The multiply-add peak, from register tiles whose operands stay in the L1 cache.
double measure_gflops() {
  const auto& isa = cpu::kernels();
  const int64_t k = 128, m = isa.rows * 8, n = isa.columns, repeats = 400;
  const double s = seconds_of_best([&] {
    parallel_for(num_threads() * 4, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k)),
          c(static_cast<size_t>(m * n));
      for (int64_t i = begin; i < end; ++i)
        for (int64_t r = 0; r < repeats; ++r)
          isa.multiply_panel(m, n, k, a.data(), b.data(), c.data(), n, true, nullptr);
    });
  });
  return 2e-9 * static_cast<double>(m * n * k * repeats * num_threads() * 4) / s;
}

double measure_gbytes() {
  Array x({64 << 20});
  std::vector<float> sums(1 << 12);
  const double s = seconds_of_best([&] {
    parallel_for(1 << 10, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sums[static_cast<size_t>(i)] =
            cpu::kernels().max_value(x.view().f32() + i * (64 << 10), 64 << 10);
    });
  });
  return 1e-9 * static_cast<double>(x.view().size_bytes()) / s;
}

void report(const std::string& name, double flops, double bytes, const Bounds& bounds,
            const std::function<void()>& work) {
  if (name.find(bounds.filter) == std::string::npos) return;
  const double s = seconds_of_best(work);
  const double compute = flops * 1e-9 / bounds.gflops, memory = bytes * 1e-9 / bounds.gbytes;
  fmt::print("{:<44} {:>9.3f} ms {:>8.1f} GF/s {:>7.1f} GB/s {:>5.0f} % of the {} bound\n", name,
             s * 1e3, flops * 1e-9 / s, bytes * 1e-9 / s, 100.0 * std::max(compute, memory) / s,
             compute > memory ? "compute" : "memory");
}

void bench_matmul(const Bounds& bounds) {
  for (const auto& c : cases::matmul_bench()) {
    const int64_t t = c.tokens, n = c.outputs, k = c.inputs;
    const Array x = Array::random({t, k}, 1), w({n, k}), y({t, n}), dx({t, k}), dw({n, k});
    const double flops = 2.0 * static_cast<double>(t * n * k),
                 bytes = 4.0 * static_cast<double>(n * k + t * (n + k));
    const std::string size = fmt::format("T={} N={} K={}", t, n, k);
    report("matmul_forward " + size, flops, bytes, bounds,
           [&] { matmul_forward(cpu_context(), y, x, {w}); });
    if (t < 64) continue;
    report("matmul_backward_input " + size, flops, bytes, bounds,
           [&] { matmul_backward_input(cpu_context(), dx, y, w, false); });
    report("matmul_backward_weight " + size, flops, bytes, bounds,
           [&] { matmul_backward_weight(cpu_context(), dw, {}, y, x); });
  }
}

void bench_attention(const Bounds& bounds) {
  for (const auto& c : cases::attention_bench()) {
    std::vector<int32_t> cu{0};
    double pairs = 0.0;
    for (int32_t length : c.lengths) {
      cu.push_back(cu.back() + length);
      pairs += 0.5 * length * (length + 1.0);
    }
    const int64_t t = cu.back();
    const Array q = Array::random({t, c.query_heads, c.dim}, 1),
                k = Array::random({t, c.kv_heads, c.dim}, 2);
    const Array out({t, c.query_heads, c.dim}), lse({t, c.query_heads}),
        dq({t, c.query_heads, c.dim});
    const Array dk({t, c.kv_heads, c.dim}), dv({t, c.kv_heads, c.dim});
    const AttentionLayout layout{cu, {}, {}, 0};
    const double flops = 4.0 * pairs * static_cast<double>(c.query_heads * c.dim);
    const double bytes = 8.0 * static_cast<double>(t * (c.query_heads + c.kv_heads) * c.dim);
    const std::string size = fmt::format("B={} T={} heads {}/{} D={}", c.lengths.size(), t,
                                         c.query_heads, c.kv_heads, c.dim);
    report("attention_forward " + size, flops, bytes, bounds,
           [&] { attention_forward(cpu_context(), out, lse, q, k, k, layout, 0.1f); });
    report("attention_backward " + size, 2.5 * flops, 2.0 * bytes, bounds, [&] {
      attention_backward(cpu_context(), dq, dk, dv, q, q, k, k, out, lse, layout, 0.1f);
    });
  }
}

void bench_rows(const Bounds& bounds) {
  for (const auto& c : cases::norm_bench()) {
    if (c.heads > 0) continue;
    const Array x = Array::random({c.tokens, c.size}, 1), w = Array::random({c.size}, 2),
                y({c.tokens, c.size}), dw({c.size});
    const double bytes = 4.0 * static_cast<double>(x.size());
    const std::string size = fmt::format("T={} H={}", c.tokens, c.size);
    report("rms_norm_forward " + size, 0, 2 * bytes, bounds,
           [&] { rms_norm_forward(cpu_context(), y, x, w, 1e-5f); });
    report("rms_norm_backward " + size, 0, 3 * bytes, bounds,
           [&] { rms_norm_backward(cpu_context(), y, dw, x, x, w, 1e-5f, false); });
  }
  for (const auto& c : cases::swiglu_bench()) {
    const Array gate_up = Array::random({c.rows, 2 * c.columns}, 1), h({c.rows, c.columns}),
                d({c.rows, 2 * c.columns});
    const double bytes = 4.0 * static_cast<double>(h.size());
    report(fmt::format("swiglu_forward T={} F={}", c.rows, c.columns), 0, 3 * bytes, bounds,
           [&] { swiglu_forward(cpu_context(), h, gate_up); });
    report(fmt::format("swiglu_backward T={} F={}", c.rows, c.columns), 0, 5 * bytes, bounds,
           [&] { swiglu_backward(cpu_context(), d, {}, h, gate_up); });
  }
  for (const auto& c : cases::rotary_bench()) {
    const Array x = Array::random({c.tokens, c.heads, c.dim}, 1),
                cosine = Array::random({c.tokens, c.rotary_dim / 2}, 2);
    Array positions({c.tokens}, DType::kI32);
    report(fmt::format("rotary T={} heads {} D={}", c.tokens, c.heads, c.dim), 0,
           8.0 * static_cast<double>(x.size()), bounds, [&] {
             rotary(cpu_context(), x, cosine, cosine, positions, RotaryStyle::kHalfSplit, false);
           });
  }
  const Array p({16 << 20}), m({16 << 20}), v({16 << 20}), g({16 << 20});
  const AdamWStep step{1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 1, 1.0f};
  report("adamw n=16M", 0, 28.0 * static_cast<double>(p.size()), bounds,
         [&] { adamw(cpu_context(), p, p, m, v, g, step); });
  report("sum_of_squares n=16M", 0, 4.0 * static_cast<double>(p.size()), bounds,
         [&] { sum_of_squares(cpu_context(), g); });
}

void bench_vocabulary(const Bounds& bounds) {
  for (const auto& c : cases::log_prob_bench()) {
    const Array raw = Array::random({c.rows, c.columns}, 1, 2.0), lse({c.rows}),
                log_probs({c.rows}), entropies({c.rows}), d({c.rows, c.columns});
    const Array targets({c.rows}, DType::kI32);
    const double bytes = 4.0 * static_cast<double>(raw.size());
    const std::string size = fmt::format("R={} V={}", c.rows, c.columns);
    report("normalize_logits " + size, 0, 3 * bytes, bounds,
           [&] { normalize_logits(cpu_context(), raw, lse, 0.999f); });
    report("gather_log_probs " + size, 0, bytes, bounds,
           [&] { gather_log_probs(cpu_context(), log_probs, entropies, raw, lse, targets); });
    report("log_probs_backward " + size, 0, 2 * bytes, bounds, [&] {
      log_probs_backward(cpu_context(), d, raw, lse, targets, entropies, log_probs, entropies,
                         0.9f);
    });
  }
  for (const auto& c : cases::sampling_bench()) {
    const Array logits = Array::random({c.rows, c.columns}, 1, 2.0), log_probs({c.rows}),
                tokens({c.rows}, DType::kI32);
    for (const auto& [name, row] : {std::pair<std::string, SamplingRow>{"plain", {}},
                                    {"top_p 0.95", {.top_p = 0.95f}},
                                    {"top_k 50", {.top_k = 50}},
                                    {"greedy", {.greedy = 1}}}) {
      std::vector<SamplingRow> rows(static_cast<size_t>(c.rows), row);
      for (uint32_t i = 0; i < rows.size(); ++i) rows[i].counter[0] = i;
      Array table({c.rows, static_cast<int64_t>(sizeof(SamplingRow))}, DType::kU8);
      std::copy(rows.begin(), rows.end(), table.view().data<SamplingRow>());
      report(fmt::format("sample_tokens {} R={} V={}", name, c.rows, c.columns), 0,
             4.0 * static_cast<double>(logits.size()), bounds,
             [&] { sample_tokens(cpu_context(), tokens, log_probs, logits, table, 0); });
    }
  }
}

int run(int argc, char** argv) {
  if (argc > 1) set_num_threads(std::atoi(argv[1]));
  for (const auto* table : cpu::available_kernels())
    if (argc > 2 && std::strcmp(argv[2], table->name) == 0) cpu::use_kernels(*table);
  const Bounds bounds{measure_gflops(), measure_gbytes(), argc > 3 ? argv[3] : ""};
  fmt::print("{} threads, {}: {:.0f} GF/s in cache, {:.1f} GB/s read from memory\n", num_threads(),
             cpu::kernels().name, bounds.gflops, bounds.gbytes);
  bench_matmul(bounds);
  bench_attention(bounds);
  bench_rows(bounds);
  bench_vocabulary(bounds);
  return 0;
}

}  // namespace
}  // namespace slimexx::ops::bench

int main(int argc, char** argv) { return slimexx::ops::bench::run(argc, argv); }
