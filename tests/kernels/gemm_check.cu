// Checks every compiled GEMM variant, with y in bf16 and in f32: bit by bit against a plain kernel
// with the contract's order of K, on ragged and whole shapes; products of few rows against the rows
// of one large product; for values of a wide range, all variants against the first one. The
// reference is checked against double.
//
//   gemm_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_case.cuh"
#include "tests/kernels/gemm_reference.cuh"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
constexpr int64_t kGuard = 4096;  // elements after y that must keep their poison
constexpr uint64_t kSeed = 20;

int comparisons = 0;
int failures = 0;

// How y is stored.
struct Product {
  const char* name;
  GemmOutput output;
  int64_t gap;  // y_stride - n
};
constexpr Product kBf16{"bf16", GemmOutput::kBf16, 0};
constexpr Product kBf16Rows{"bf16 rows apart", GemmOutput::kBf16, 8};
constexpr Product kF32{"f32", GemmOutput::kF32, 0};
constexpr Product kF32Rows{"f32 rows apart", GemmOutput::kF32, 4};

struct Operands : GemmOperands {
  Operands(int64_t rows, int64_t features, int64_t depth, bool with_bias,
           Values kind = Values::kNormal)
      : GemmOperands({.m = rows,
                      .n = features,
                      .k = depth,
                      .has_bias = with_bias,
                      .values = kind,
                      .seed = kSeed}),
        y(m * (n + 8) + kGuard),
        expected(m * n),
        sums(m * n) {
    if (values != Values::kNormal) {
      multiply_by_first_config();
      return;
    }
    const int64_t tiles = (m + 15) / 16 * ((n + 7) / 8);
    multiply_in_order<<<static_cast<unsigned>((tiles + 7) / 8), 256>>>(
        x.data(), w.data(), bias_pointer, expected.data(), sums.data(), m, n, k);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  // For values of a wide range within a step of k the tensor cores' result is not specified. The
  // contract is only that all variants have the same bits, so the first one is the reference.
  void multiply_by_first_config() {
    GemmArgs args = GemmOperands::args(m, expected.data());
    const char* fault = launch_gemm(args, get_gemm_config(0), nullptr);
    args.y = sums.data();
    args.output = GemmOutput::kF32;
    if (fault == nullptr) fault = launch_gemm(args, get_gemm_config(0), nullptr);
    SLX_CUDA(cudaDeviceSynchronize());
    if (fault == nullptr) return;
    std::printf("FAIL launch: %s\n", fault);
    ++failures;
  }
  DeviceArray<float> y;  // bf16 products use half of it
  Bf16Array expected;
  DeviceArray<float> sums;
};

void print_config(const GemmConfig& c) {
  std::printf("%s %dx%d tokens %d cluster %d band %d blocks %d lead %d",
              c.swap_operands ? "swapped"
              : c.ping_pong   ? "in turns"
                              : "plain",
              c.rows, c.columns, c.tokens, c.cluster, c.band, c.blocks_per_sm, c.lead);
}

template <class Bits>
Bits bits_at(const void* data, int64_t index) {
  Bits bits;
  SLX_CUDA(cudaMemcpy(&bits, static_cast<const Bits*>(data) + index, sizeof(bits),
                      cudaMemcpyDeviceToHost));
  return bits;
}

template <class Bits>
void report(const Operands& o, int64_t m, const Product& product, const GemmConfig& c,
            const void* expected, const Difference (&found)[2]) {
  ++failures;
  if (failures > 40) return;
  std::printf("FAIL m %ld n %ld k %ld bias %d %s %s seed %lu ", long(m), long(o.n), long(o.k),
              o.bias_pointer != nullptr, product.name, name_values(o.values),
              static_cast<unsigned long>(kSeed));
  print_config(c);
  const int64_t stride = o.n + product.gap;
  if (found[0].count > 0) {
    const int64_t i = static_cast<int64_t>(found[0].first);
    const int64_t row = i / stride, column = i % stride;
    std::printf(": %llu elements differ, first at row %ld column %ld: %0*x, expected %0*x",
                found[0].count, long(row), long(column), int(2 * sizeof(Bits)),
                unsigned(bits_at<Bits>(o.y.data(), i)), int(2 * sizeof(Bits)),
                unsigned(bits_at<Bits>(expected, row * o.n + column)));
  }
  if (found[1].count > 0) {
    std::printf(": %llu elements outside of y were written, first at row %ld column %ld",
                found[1].count, long(found[1].first) / stride, long(found[1].first) % stride);
  }
  std::printf("\n");
}

template <class Bits>
void compare(const Operands& o, int64_t m, const Product& product, const GemmConfig& c,
             const void* expected) {
  static DeviceArray<Difference> differences(2);
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  const int64_t stride = o.n + product.gap;
  compare_product<<<1024, 256>>>(reinterpret_cast<const Bits*>(o.y.data()), stride,
                                 m * stride + kGuard, static_cast<const Bits*>(expected), m, o.n,
                                 differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  ++comparisons;
  if (found[0].count + found[1].count > 0) report<Bits>(o, m, product, c, expected, found);
}

// Compares the first m rows of the product under configuration c with the expected rows.
void check_product(Operands& o, int64_t m, const Product& product, const GemmConfig& c,
                   bool overlap) {
  const bool f32 = product.output == GemmOutput::kF32;
  const int64_t stride = o.n + product.gap;
  SLX_CUDA(cudaMemset(o.y.data(), 0xff, static_cast<size_t>(m * stride + kGuard) * (f32 ? 4 : 2)));
  GemmArgs args = o.args(m, o.y.data());
  args.overlap_previous = overlap;
  args.output = product.output;
  args.y_stride = product.gap == 0 ? 0 : stride;
  if (const char* fault = launch_gemm(args, c, nullptr)) {
    std::printf("FAIL launch: %s\n", fault);
    ++failures;
    return;
  }
  if (f32) {
    compare<uint32_t>(o, m, product, c, o.sums.data());
  } else {
    compare<uint16_t>(o, m, product, c, o.expected.data());
  }
}

// Alternates between dense and wider rows of y, so that over all shapes each variant stores both,
// in bf16 and in f32.
void check_config(Operands& o, int64_t m, const GemmConfig& c, bool overlap = false) {
  static int turn = 0;
  constexpr Product kRounded[2] = {kBf16, kBf16Rows};
  constexpr Product kWhole[2] = {kF32, kF32Rows};
  check_product(o, m, kRounded[turn / 3 % 2], c, overlap);
  check_product(o, m, kWhole[turn / 5 % 2], c, overlap);
  ++turn;
}

void check_all_configs(Operands& o, int64_t m) {
  for (int i = 0; i < count_gemm_configs(); ++i) {
    GemmConfig c = get_gemm_config(i);
    check_config(o, m, c);
    c.lead = c.lead == 0 ? 3 : 0;
    if (c.rows == 128) check_config(o, m, c);
    c.tokens = std::max(1, (c.swap_operands ? c.columns : c.rows) - 21);
    check_config(o, m, c);
    c.tokens = 0;
    if (!c.swap_operands && c.rows == 64 && c.columns <= 96) {
      c.blocks_per_sm = 2;
      check_config(o, m, c, true);
    }
    if (!c.swap_operands) continue;
    c.rows -= c.cluster == 1 ? 24 : 16;
    check_config(o, m, c);
    c.rows -= 32;
    check_config(o, m, c, true);
    if (c.rows > 64 || c.columns > 64 || c.cluster > 1) continue;
    c.blocks_per_sm = 2;
    check_config(o, m, c);
  }
}

// Checks every number of rows that a swapped tile may have.
void check_row_heights(Operands& o) {
  for (int i = 0; i < count_gemm_configs(); ++i) {
    GemmConfig c = get_gemm_config(i);
    if (!c.swap_operands) continue;
    const int least = c.rows - 56;
    const int step = 8 * c.cluster;
    for (; c.rows >= least; c.rows -= step) check_config(o, o.m, c);
  }
}

// Checks every number of rows from 1 to 64, with each tile for few rows.
void check_few_rows(int64_t n, int64_t k, bool bias) {
  Operands o(64, n, k, bias);
  for (int64_t m = 1; m <= 64; ++m) {
    check_config(o, m, choose_gemm_config(m, n, k), m % 2 == 0);
    for (int i = 0; i < count_gemm_configs(); ++i) {
      const GemmConfig c = get_gemm_config(i);
      if ((c.swap_operands ? c.columns : c.rows) <= 64) check_config(o, m, c);
    }
  }
}

// bf16 rounding alone causes a distance of 1.7e-3 of the norm.
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

// Checks every variant with each kind of wide-ranged values, and also against double if that is
// exact enough.
void check_wide(int64_t m, int64_t n, int64_t k) {
  for (const Values values : {Values::kExponents, Values::kZeros, Values::kCancelling,
                              Values::kMassive, Values::kInfinite}) {
    Operands o(m, n, k, true, values);
    if (values == Values::kMassive) check_reference(o);
    for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{64}, int64_t{130}, m})
      check_all_configs(o, rows);
  }
}

void expect_fault(const char* what, const GemmArgs& args, bool with_config = false) {
  ++comparisons;
  const char* fault =
      with_config ? launch_gemm(args, get_gemm_config(0), nullptr) : launch_gemm(args, nullptr);
  if (fault != nullptr) return;
  ++failures;
  std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const Bf16Array memory(4096);
  __nv_bfloat16* p = memory.data();
  expect_fault("k of 12 under a configuration", {p, p, nullptr, p, 8, 8, 12}, true);
  expect_fault("n of 12 under a configuration", {p, p, nullptr, p, 8, 12, 8}, true);
  expect_fault("misaligned w under a configuration", {p, p + 1, nullptr, p, 8, 8, 8}, true);
  GemmArgs odd{p, p, nullptr, p, 8, 13, 8};
  odd.y_stride = 12;
  expect_fault("y_stride below an odd n", odd);
  expect_fault("k of 0", {p, p, nullptr, p, 8, 8, 0});
  expect_fault("negative m", {p, p, nullptr, p, -1, 8, 8});
  expect_fault("misaligned x", {p + 4, p, nullptr, p, 8, 8, 8});
  expect_fault("null y", {p, p, nullptr, nullptr, 8, 8, 8});
  expect_fault("bias at an odd element", {p, p, p + 1, p, 8, 8, 8});
  GemmArgs strided{p, p, nullptr, p, 8, 16, 8};
  strided.y_stride = 8;
  expect_fault("y_stride below n", strided);
  strided.y_stride = 20;
  expect_fault("bf16 y_stride of 20", strided);
  strided.output = GemmOutput::kF32;
  strided.y_stride = 18;
  expect_fault("f32 y_stride of 18", strided);
  ++comparisons;
  if (launch_gemm({nullptr, nullptr, nullptr, nullptr, 0, 8, 8}, nullptr) != nullptr) {
    ++failures;
    std::printf("FAIL: m of 0 was refused\n");
  }
}

// Compares products with the serial chain for sizes and addresses that tensor cores do not support.
void check_fallback(int64_t n, int64_t k, int64_t w_offset, int64_t gap) {
  constexpr int64_t kRows = 300;
  const int64_t stride = n + gap;
  Bf16Array x(kRows * k), w(n * k + w_offset), bias(n), expected(kRows * n);
  DeviceArray<float> y(kRows * stride + kGuard), sums(kRows * n);
  fill_normal<<<1024, 256>>>(x.data(), x.count(), kSeed, 1.0f);
  fill_normal<<<1024, 256>>>(w.data(), w.count(), kSeed + 1, 1.0f / std::sqrt(float(k)));
  fill_normal<<<64, 256>>>(bias.data(), bias.count(), kSeed + 2, 1.0f);
  multiply_serially<<<static_cast<unsigned>((kRows * n + 255) / 256), 256>>>(
      x.data(), w.data() + w_offset, bias.data(), expected.data(), sums.data(), kRows, n, k);
  DeviceArray<Difference> differences(2);
  for (const int64_t m : {1, 2, 17, 64, 65, 300}) {
    for (const bool f32 : {false, true}) {
      y.set_bytes(0xff);
      Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
      SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
      GemmArgs args{x.data(), w.data() + w_offset, bias.data(), y.data(), m, n, k};
      args.output = f32 ? GemmOutput::kF32 : GemmOutput::kBf16;
      args.y_stride = stride;
      const char* fault = launch_gemm(args, nullptr);
      const int64_t total = m * stride + kGuard;
      if (f32) {
        compare_product<<<256, 256>>>(reinterpret_cast<const uint32_t*>(y.data()), stride, total,
                                      reinterpret_cast<const uint32_t*>(sums.data()), m, n,
                                      differences.data());
      } else {
        compare_product<<<256, 256>>>(reinterpret_cast<const uint16_t*>(y.data()), stride, total,
                                      reinterpret_cast<const uint16_t*>(expected.data()), m, n,
                                      differences.data());
      }
      SLX_CUDA(cudaDeviceSynchronize());
      SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
      ++comparisons;
      if (fault == nullptr && found[0].count + found[1].count == 0) continue;
      ++failures;
      std::printf(
          "FAIL fallback m %ld n %ld k %ld w + %ld f32 %d seed %lu: %s, %llu elements "
          "differ, first at %llu, %llu outside of y\n",
          long(m), long(n), long(k), long(w_offset), f32, static_cast<unsigned long>(kSeed),
          fault == nullptr ? "queued" : fault, found[0].count, found[0].first, found[1].count);
    }
  }
}

// The vocabulary of a language model: with many rows y is larger than 2^31 bytes.
void check_vocabulary(int64_t n, int64_t k) {
  Operands o(2048, n, k, false);
  for (const int64_t m : {1, 64, 256, 2048}) {
    for (int i = 0; i < count_gemm_configs(); ++i) {
      check_product(o, m, kF32, get_gemm_config(i), false);
    }
    check_product(o, m, kF32Rows, choose_gemm_config(m, n, k), false);
    check_product(o, m, kBf16, choose_gemm_config(m, n, k), false);
  }
}

// A chain of products with square weights, each of which reads the previous result. With
// overlapping launches the last output must equal that of ordinary launches.
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
    DeviceArray<Difference> found(2);
    found.set_bytes(0);
    compare_product<<<256, 256>>>(reinterpret_cast<const uint16_t*>(b.data()), n, m * n,
                                  reinterpret_cast<const uint16_t*>(expected.data()), m, n,
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

// Checks each variant with a K of two rounds of its ring, then with more tiles than SMs. For
// ping-pong, where warpgroups wait for each other, these tiles also have several rounds.
void check_tiny() {
  Operands ring(130, 264, 2560, true), flat(1544, 5128, 72, false);
  Operands deep(1544, 5128, 968, false);
  for (int i = 0; i < count_gemm_configs(); ++i) {
    GemmConfig c = get_gemm_config(i);
    check_config(ring, ring.m, c);
    const int room = c.swap_operands ? c.columns : c.rows;
    c.tokens = i % 2 == 0 ? 0 : room - 21;
    const int tokens = c.tokens == 0 ? room : c.tokens;
    const int features = c.swap_operands ? c.rows : c.columns;
    Operands& tiles = c.ping_pong ? deep : flat;
    const int64_t beside = (tiles.n + features - 1) / features;
    c.lead = c.lead == 0 ? 3 : 0;
    const int blocks = c.ping_pong ? 2 : c.blocks_per_sm;
    check_config(tiles, tokens * (140 * blocks / beside + 1) - 3, c, true);
  }
}

// Ping-pong with many tiles, each with several rounds of the ring.
void check_turns() {
  Operands o(2000, 5128, 1000, true);
  for (int i = 0; i < count_gemm_configs(); ++i) {
    if (get_gemm_config(i).ping_pong) check_config(o, o.m, get_gemm_config(i));
  }
}

int run(CheckSize size) {
  check_refusals();
  check_fallback(77, 129, 0, 3);
  if (size == CheckSize::kTiny) {
    check_tiny();
    std::printf("gemm_check: %d comparisons, %d failures\n", comparisons, failures);
    return failures == 0 ? 0 : 1;
  }
  check_fallback(72, 64, 1, 0);
  check_fallback(130, 200, 0, 0);
  check_fallback(64, 30, 0, 1);
  if (size == CheckSize::kSmall) {
    check_ragged({1}, {72}, {72});
    check_ragged({17, 300}, {520}, {200, 192});
    check_turns();
  } else {
    check_ragged({1, 7, 8, 16, 17, 33, 64, 65, 128, 130, 300, 600}, {8, 72, 264, 1032},
                 {8, 40, 64, 136, 1000});
    Operands heights(96, 1544, 520, true);
    check_row_heights(heights);
    check_few_rows(520, 1088, true);  // an odd number of boxes along k
    check_few_rows(264, 1000, false);
    check_few_rows(72, 64, true);
    check_invariance(4608, 4096, true);
    check_invariance(1000, 13696, false);
    check_wide(600, 520, 1088);
    check_wide(300, 1032, 4096);
    check_vocabulary(151936, 128);
    for (const int64_t m : {5, 64, 200}) check_overlapped_chain(m, 2048);
  }
  std::printf("gemm_check: %d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
