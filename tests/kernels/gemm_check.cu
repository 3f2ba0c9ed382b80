// Every compiled GEMM variant against a plain kernel with the contract's order of K, bit by bit,
// on ragged and whole shapes; every variant at few rows against the rows of one large product; the
// reference itself against double.
//
//   gemm_check [--small]      --small: shapes that are quick under compute-sanitizer
#include <cstring>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
constexpr int64_t kGuard = 4096;  // elements behind y that must keep their poison
constexpr uint64_t kSeed = 20;

int comparisons = 0;
int failures = 0;

struct Operands {
  Operands(int64_t m_, int64_t n_, int64_t k_, bool with_bias)
      : m(m_), n(n_), k(k_), x(m * k), w(n * k), bias(n), y(m * n + kGuard), expected(m * n) {
    fill_normal<<<1024, 256>>>(x.data(), x.count(), kSeed, 1.0f);
    fill_normal<<<1024, 256>>>(w.data(), w.count(), kSeed + 1, 1.0f / std::sqrt(float(k)));
    fill_normal<<<64, 256>>>(bias.data(), bias.count(), kSeed + 2, 1.0f);
    bias_pointer = with_bias ? bias.data() : nullptr;
    const int64_t tiles = (m + 15) / 16 * ((n + 7) / 8);
    multiply_in_order<<<static_cast<unsigned>((tiles + 7) / 8), 256>>>(
        x.data(), w.data(), bias_pointer, expected.data(), m, n, k);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t m, n, k;
  Bf16Array x, w, bias, y, expected;
  const __nv_bfloat16* bias_pointer = nullptr;
};

void print_config(const GemmConfig& c) {
  std::printf("%s %dx%d cluster %d band %d blocks %d lead %d",
              c.swap_operands ? "swapped" : "plain", c.rows, c.columns, c.cluster, c.band,
              c.blocks_per_sm, c.lead);
}

uint16_t bits_at(const Bf16Array& a, int64_t index) {
  const __nv_bfloat16 value = a.get(index);
  uint16_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void report(const Operands& o, int64_t m, const GemmConfig& c, const Difference& y,
            const Difference& guard) {
  ++failures;
  if (failures > 40) return;
  std::printf("FAIL m %ld n %ld k %ld bias %d seed %lu ", long(m), long(o.n), long(o.k),
              o.bias_pointer != nullptr, static_cast<unsigned long>(kSeed));
  print_config(c);
  if (y.count > 0) {
    const int64_t i = static_cast<int64_t>(y.first);
    std::printf(": %llu elements differ, first at row %ld column %ld: %04x, expected %04x", y.count,
                long(i / o.n), long(i % o.n), bits_at(o.y, i), bits_at(o.expected, i));
  }
  if (guard.count > 0) std::printf(": %llu elements behind y were written", guard.count);
  std::printf("\n");
}

// The first m rows of the product under configuration c, against the expected rows.
void check_config(Operands& o, int64_t m, const GemmConfig& c, bool overlap = false) {
  static DeviceArray<Difference> found(2);
  const Difference none[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(found.data(), none, sizeof(none), cudaMemcpyHostToDevice));
  o.y.set_bytes(0xff);
  GemmArgs args{o.x.data(), o.w.data(), o.bias_pointer, o.y.data(), m, o.n, o.k};
  args.overlap_previous = overlap;
  if (const char* fault = launch_gemm(args, c, nullptr)) {
    std::printf("FAIL launch: %s\n", fault);
    ++failures;
    return;
  }
  const auto* y = reinterpret_cast<const uint16_t*>(o.y.data());
  compare_bits<<<1024, 256>>>(y, reinterpret_cast<const uint16_t*>(o.expected.data()), m * o.n,
                              found.data());
  compare_constant<<<kGuard / 256, 256>>>(y + m * o.n, 0xffff, kGuard, found.data() + 1);
  SLX_CUDA(cudaDeviceSynchronize());
  Difference result[2];
  SLX_CUDA(cudaMemcpy(result, found.data(), sizeof(result), cudaMemcpyDeviceToHost));
  ++comparisons;
  if (result[0].count + result[1].count > 0) report(o, m, c, result[0], result[1]);
}

void check_all_configs(Operands& o, int64_t m) {
  for (int i = 0; i < count_gemm_configs(); ++i) {
    GemmConfig c = get_gemm_config(i);
    check_config(o, m, c);
    c.lead = c.lead == 0 ? 3 : 0;
    if (c.rows == 128) check_config(o, m, c);
    if (!c.swap_operands) continue;
    c.rows -= 24;
    check_config(o, m, c);
    c.rows -= 32;
    check_config(o, m, c, true);
    if (c.rows > 64 || c.columns > 64) continue;
    c.blocks_per_sm = 2;
    check_config(o, m, c);
  }
}

// Every height that a swapped tile may have.
void check_row_heights(Operands& o) {
  for (int i = 0; i < count_gemm_configs(); ++i) {
    GemmConfig c = get_gemm_config(i);
    if (!c.swap_operands) continue;
    const int least = c.rows - 56;
    for (; c.rows >= least; c.rows -= 8) check_config(o, o.m, c);
  }
}

// bf16 rounding alone leaves 1.7e-3 of the norm.
void check_reference(Operands& o) {
  DeviceArray<double> sums(2);
  sums.set_bytes(0);
  measure_distance<<<static_cast<unsigned>((o.m * o.n + 255) / 256), 256>>>(
      o.x.data(), o.w.data(), o.bias_pointer, o.expected.data(), o.m, o.n, o.k, sums.data());
  SLX_CUDA(cudaDeviceSynchronize());
  const double distance = std::sqrt(sums.get(0) / sums.get(1));
  ++comparisons;
  if (!(distance < 3e-3)) {
    ++failures;
    std::printf("FAIL reference m %ld n %ld k %ld: relative distance %g from double\n", long(o.m),
                long(o.n), long(o.k), distance);
  }
}

void check_ragged(const std::vector<int64_t>& rows, const std::vector<int64_t>& features,
                  const std::vector<int64_t>& depths) {
  bool bias = false;
  for (const int64_t m : rows) {
    for (const int64_t n : features) {
      for (const int64_t k : depths) {
        bias = !bias;
        Operands o(m, n, k, bias);
        check_reference(o);
        check_all_configs(o, m);
      }
    }
  }
}

// Rows of a product of 8192 rows, computed again as products of few rows.
void check_invariance(int64_t n, int64_t k, bool bias) {
  Operands o(8192, n, k, bias);
  for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 31, 33, 48, 64, 65, 128, 130, 300, 1000, 8192}) {
    check_all_configs(o, m);
    check_config(o, m, choose_gemm_config(m, n, k));
  }
}

void expect_fault(const char* what, const GemmArgs& args) {
  ++comparisons;
  if (launch_gemm(args, nullptr) != nullptr) return;
  ++failures;
  std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const Bf16Array memory(4096);
  __nv_bfloat16* p = memory.data();
  expect_fault("k of 12", {p, p, nullptr, p, 8, 8, 12});
  expect_fault("n of 12", {p, p, nullptr, p, 8, 12, 8});
  expect_fault("k of 0", {p, p, nullptr, p, 8, 8, 0});
  expect_fault("negative m", {p, p, nullptr, p, -1, 8, 8});
  expect_fault("misaligned x", {p + 4, p, nullptr, p, 8, 8, 8});
  expect_fault("null y", {p, p, nullptr, nullptr, 8, 8, 8});
  expect_fault("bias at an odd element", {p, p, p + 1, p, 8, 8, 8});
  ++comparisons;
  if (launch_gemm({nullptr, nullptr, nullptr, nullptr, 0, 8, 8}, nullptr) != nullptr) {
    ++failures;
    std::printf("FAIL: m of 0 was refused\n");
  }
}

// A chain of products, each of which reads what the one before it wrote, launched to overlap: with
// square weights the last output is compared with the same chain launched one after another.
void check_overlapped_chain(int64_t m, int64_t n) {
  constexpr int kLinks = 24;
  Bf16Array w(n * n), start(m * n), a(m * n), b(m * n), expected(m * n);
  fill_normal<<<1024, 256>>>(w.data(), w.count(), kSeed, 1.0f / std::sqrt(float(n)));
  fill_normal<<<1024, 256>>>(start.data(), start.count(), kSeed + 1, 1.0f);
  for (int index = 0; index < count_gemm_configs(); ++index) {
    const GemmConfig c = get_gemm_config(index);
    for (const bool overlap : {false, true}) {
      const __nv_bfloat16* from = start.data();
      for (int link = 0; link < kLinks; ++link) {
        __nv_bfloat16* to = link % 2 == 0 ? a.data() : b.data();
        GemmArgs args{from, w.data(), nullptr, to, m, n, n};
        args.overlap_previous = overlap && link > 0;
        if (launch_gemm(args, c, nullptr) != nullptr) ++failures;
        from = to;
      }
      if (!overlap) {
        SLX_CUDA(cudaMemcpyAsync(expected.data(), from, static_cast<size_t>(m * n * 2),
                                 cudaMemcpyDeviceToDevice));
      }
    }
    DeviceArray<Difference> found(1);
    found.set_bytes(0);
    compare_bits<<<256, 256>>>(reinterpret_cast<const uint16_t*>(b.data()),
                               reinterpret_cast<const uint16_t*>(expected.data()), m * n,
                               found.data());
    SLX_CUDA(cudaDeviceSynchronize());
    ++comparisons;
    const Difference difference = found.get(0);
    if (difference.count == 0) continue;
    ++failures;
    std::printf("FAIL overlapped chain of m %ld n %ld: %llu elements differ under ", long(m),
                long(n), difference.count);
    print_config(c);
    std::printf("\n");
  }
}

int run(bool small) {
  check_refusals();
  if (small) {
    check_ragged({1, 17, 300}, {72, 520}, {72, 200});
  } else {
    check_ragged({1, 7, 8, 16, 17, 33, 64, 65, 128, 130, 300, 600}, {8, 72, 264, 1032},
                 {8, 40, 64, 136, 1000});
    Operands heights(96, 1544, 520, true);
    check_row_heights(heights);
    check_invariance(4608, 4096, true);
    check_invariance(1000, 13696, false);
    for (const int64_t m : {5, 64, 200}) check_overlapped_chain(m, 2048);
  }
  std::printf("gemm_check: %d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  return slimexx::kernels::testing::run(argc > 1 && std::strcmp(argv[1], "--small") == 0);
}
