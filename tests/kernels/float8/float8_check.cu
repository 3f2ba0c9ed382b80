// Checks FP8. The quantisers: byte by byte against the functions that the CPU uses. Every compiled
// variant of the product, with y in bf16 and in f32: bit by bit against a kernel of one warpgroup
// that computes the chain of float8.h with the smallest wgmma, on ragged and whole shapes, and for
// few rows of one large product. The reference is checked against double. Products that quantise x
// themselves must have the same bits.
//
//   float8_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <vector>

#include "tests/kernels/check_size.h"
#include "tests/kernels/float8/product_check.cuh"
#include "tests/kernels/float8/quantise_cases.cuh"

namespace slimexx::kernels::testing {
namespace {

CheckCounts counts;

void check_config(Operands& o, int64_t m, const Fp8GemmConfig& c, bool overlap = false) {
  check_product(counts, o, m, c, overlap);
}

void check_all_configs(Operands& o, int64_t m) {
  check_config(o, m, choose_fp8_gemm_config(m, o.n, o.k));
  for (int i = 0; i < count_fp8_gemm_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_gemm_config(i);
    check_config(o, m, c);
    if (!c.swap_operands) {
      c.lead = (c.lead + 1) % 3;
      c.band = 3;
      check_config(o, m, c, true);
      continue;
    }
    c.tokens = std::max(1, c.columns - 5);
    check_config(o, m, c);
    c.rows -= c.cluster == 1 ? 24 : 16;
    check_config(o, m, c, true);
    c.tokens = 0;
    c.rows -= c.cluster == 1 ? 8 : 16;
    check_config(o, m, c);
  }
}

// Every number of rows that a swapped tile may have.
void check_row_heights(Operands& o) {
  for (int i = 0; i < count_fp8_gemm_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_gemm_config(i);
    if (!c.swap_operands) continue;
    const int least = c.rows - 56;
    for (; c.rows >= least; c.rows -= 8 * c.cluster) check_config(o, o.m, c);
  }
}

// Every number of rows from 1 to 64, with each tile for few rows.
void check_few_rows(const Float8Case& sizes) {
  Operands o(sizes);
  for (int64_t m = 1; m <= o.m; ++m) {
    check_config(o, m, choose_fp8_gemm_config(m, o.n, o.k), m % 2 == 0);
    for (int i = 0; i < count_fp8_gemm_configs(); ++i) {
      const Fp8GemmConfig c = get_fp8_gemm_config(i);
      if (c.swap_operands && c.columns <= 64) check_config(o, m, c);
    }
  }
}

// Every number of rows that products may quantise themselves, with each tile for them.
void check_bf16_input(const Float8Case& sizes, const Bf16InputCase& values) {
  Operands o(sizes);
  const Bf16Input input(o, values);
  o.input = &input;
  o.compute_expected();
  for (int64_t m = 1; m <= o.m && fp8_gemm_quantises(m, o.k); ++m) {
    check_config(o, m, choose_fp8_gemm_config(m, o.n, o.k, true), true);
    for (int i = 0; i < count_fp8_gemm_configs(); ++i) {
      const Fp8GemmConfig c = get_fp8_gemm_config(i);
      if (!suits_fp8_bf16_input(c)) continue;
      check_config(o, m, c, m % 2 == 0);
      check_config(o, m, shrink_tile(c, m % 2 == 0 ? 24 : 56), true);
    }
  }
}

// The sums of the reference in f32. Cancelling sums have larger relative errors.
void check_reference(Operands& o) {
  DeviceArray<double> sums(2);
  sums.set_bytes(0);
  measure_f8_distance<<<static_cast<unsigned>((o.m * o.n + 255) / 256), 256>>>(
      o.args(o.m, nullptr), o.sums.data(), sums.data());
  SLX_CUDA(cudaDeviceSynchronize());
  const double distance = std::sqrt(sums.get(0) / sums.get(1));
  if (counts.fails(distance < 1e-3)) {
    std::printf("FAIL reference m %ld n %ld k %ld %s: relative distance %g from double\n",
                long(o.m), long(o.n), long(o.k), name_values(o.sizes.values), distance);
  }
}

void check_ragged(const std::vector<int64_t>& rows, const std::vector<int64_t>& features,
                  const std::vector<int64_t>& depths) {
  int turn = 0;
  for (const int64_t m : rows) {
    for (const int64_t n : features) {
      for (const int64_t k : depths) {
        Operands o({.m = m,
                    .n = n,
                    .k = k,
                    .has_bias = turn % 2 == 1,
                    .values = static_cast<F8Values>(turn / 2 % 4),
                    .gap = turn % 3 == 0 ? 128 : 0});
        ++turn;
        check_reference(o);
        check_all_configs(o, m);
      }
    }
  }
}

// Rows of a large product, computed again as products of few rows.
void check_invariance(const Float8Case& sizes) {
  Operands o(sizes);
  for (const int64_t m : {1, 2, 7, 8, 9, 16, 17, 33, 48, 64, 65, 128, 130, 193, 300, 1000})
    check_all_configs(o, std::min(m, o.m));
  check_all_configs(o, o.m);
}

// A NaN scale of x makes its row NaN; one of w makes its columns NaN.
void check_nan_scales() {
  Operands o({.m = 70, .n = 192, .k = 384, .has_bias = true});
  const float nan = std::bit_cast<float>(0x7FC00000);
  const auto spoil = [nan](const DeviceArray<float>& scales, int64_t i) {
    SLX_CUDA(cudaMemcpy(scales.data() + i, &nan, 4, cudaMemcpyHostToDevice));
  };
  spoil(o.x_scales, 72 + 66);
  spoil(o.w_scales, 3 + 2);
  o.compute_expected();
  const auto is_nan = [&o](int64_t row, int64_t column) {
    return std::isnan(o.sums.get(row * o.n + column));
  };
  if (counts.fails(is_nan(66, 0) && is_nan(0, 64) && is_nan(69, 127) && !is_nan(65, 63) &&
                   !is_nan(69, 128))) {
    std::printf("FAIL: NaN scales do not make exactly their outputs NaN\n");
  }
  check_all_configs(o, o.m);
}

// A chain of quantisations and products with square weights. With overlapping launches the last
// output must equal that of ordinary launches; so must that of products that quantise x themselves.
void check_overlapped_chain(int64_t m, int64_t n) {
  constexpr int kLinks = 24;
  const Float8Operands o({.m = m, .n = n, .k = n});
  DeviceArray<__nv_bfloat16> start(m * n), a(m * n), b(m * n), expected(m * n);
  DeviceArray<uint8_t> q(m * n);
  DeviceArray<float> scales(n / 128 * fp8_scale_stride(m));
  fill_normal<<<1024, 256>>>(start.data(), start.count(), 41, 1.0f);
  for (int index = 0; index < count_fp8_gemm_configs(); ++index) {
    const Fp8GemmConfig c = get_fp8_gemm_config(index);
    const char* fault = nullptr;
    enum class Chain { kOrdinary, kOverlapped, kBf16Input };
    for (const Chain chain : {Chain::kOrdinary, Chain::kOverlapped, Chain::kBf16Input}) {
      const bool bf16 = chain == Chain::kBf16Input;
      if (bf16 && !(fp8_gemm_quantises(m, n) && suits_fp8_bf16_input(c))) continue;
      const __nv_bfloat16* from = start.data();
      for (int link = 0; link < kLinks; ++link) {
        __nv_bfloat16* to = link % 2 == 0 ? a.data() : b.data();
        const char* first =
            bf16
                ? nullptr
                : launch_quantise_rows(
                      {.x = from, .q = q.data(), .scales = scales.data(), .m = m, .k = n}, nullptr);
        Fp8GemmArgs args = o.args(m, to);
        args.x = bf16 ? static_cast<const void*>(from) : q.data();
        args.x_scales = scales.data();
        args.x_is_bf16 = bf16;
        args.overlap_previous = chain != Chain::kOrdinary;
        const char* second = launch_fp8_gemm(args, c, nullptr);
        if (first != nullptr || second != nullptr) fault = first != nullptr ? first : second;
        from = to;
      }
      if (chain == Chain::kOrdinary) {
        SLX_CUDA(cudaMemcpyAsync(expected.data(), from, static_cast<size_t>(m * n * 2),
                                 cudaMemcpyDeviceToDevice));
        continue;
      }
      const Difference difference = compare_rows(b, expected, m, n);
      if (!counts.fails(difference.count == 0 && fault == nullptr)) continue;
      std::printf("FAIL overlapped chain of m %ld n %ld%s, %s: %llu elements differ under ",
                  long(m), long(n), bf16 ? ", x in bf16" : "", fault == nullptr ? "queued" : fault,
                  difference.count);
      print_config(c);
      std::printf("\n");
    }
  }
}

void expect_fault(const char* what, const char* fault) {
  if (counts.fails(fault != nullptr)) std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const Float8Operands o({.m = 8, .n = 64, .k = 128});
  DeviceArray<float> y(8 * 64);
  const auto refuses = [&](const char* what, const auto& change) {
    Fp8GemmArgs args = o.args(8, y.data());
    change(args);
    expect_fault(what, launch_fp8_gemm(args, nullptr));
  };
  refuses("n of 72", [](Fp8GemmArgs& a) { a.n = 72; });
  refuses("k of 64", [](Fp8GemmArgs& a) { a.k = 64; });
  refuses("k of 0", [](Fp8GemmArgs& a) { a.k = 0; });
  refuses("negative m", [](Fp8GemmArgs& a) { a.m = -1; });
  refuses("misaligned x", [](Fp8GemmArgs& a) { a.x = static_cast<const uint8_t*>(a.x) + 8; });
  refuses("null w", [](Fp8GemmArgs& a) { a.w = nullptr; });
  refuses("null scales of w", [](Fp8GemmArgs& a) { a.w_scales = nullptr; });
  refuses("misaligned scales of x", [](Fp8GemmArgs& a) { ++a.x_scales; });
  refuses("x_scale_stride below m", [](Fp8GemmArgs& a) { a.x_scale_stride = 4; });
  refuses("x_scale_stride of 9", [](Fp8GemmArgs& a) { a.x_scale_stride = 9; });
  refuses("w_stride of 136", [](Fp8GemmArgs& a) { a.w_stride = 136; });
  refuses("y_stride of 68", [](Fp8GemmArgs& a) { a.y_stride = 68; });
  const auto refuses_bf16 = [&](const char* what, const auto& change) {
    refuses(what, [&](Fp8GemmArgs& a) {
      a.x = a.w;
      a.m = 4;
      a.k = 128;
      a.x_is_bf16 = true;
      change(a);
    });
  };
  refuses_bf16("17 rows of bf16", [](Fp8GemmArgs& a) { a.m = 17; });
  refuses_bf16("9 rows of 8192 bf16", [](Fp8GemmArgs& a) { a.m = 9, a.k = 8192; });
  refuses_bf16("x_stride of 132", [](Fp8GemmArgs& a) { a.x_stride = 132; });
  refuses_bf16("x_stride of 120", [](Fp8GemmArgs& a) { a.x_stride = 120; });
  Fp8GemmArgs wide = o.args(8, y.data());
  wide.x_is_bf16 = true;
  expect_fault("a tile of 24 columns for bf16", launch_fp8_gemm(wide, {true, 64, 24}, nullptr));
  expect_fault("a tile that is not compiled",
               launch_fp8_gemm(o.args(8, y.data()), {false, 64, 64, 1, 1, 0, 0}, nullptr));
  expect_fault(
      "k of 100 to quantise",
      launch_quantise_rows({.x = y.data(), .q = o.x.data(), .scales = y.data(), .m = 1, .k = 100},
                           nullptr));
  expect_fault(
      "32 rows of weights to quantise",
      launch_quantise_blocks(
          {.w = y.data(), .q = o.x.data(), .scales = y.data(), .rows = 32, .k = 128}, nullptr));
  Fp8GemmArgs none;
  none.n = 64;
  none.k = 128;
  if (counts.fails(launch_fp8_gemm(none, nullptr) == nullptr)) std::printf("FAIL: m of 0\n");
}

// Each variant with a K of several rounds of its ring, then with more tiles than multiprocessors.
void check_tiny() {
  Operands ring({.m = 130, .n = 320, .k = 3712, .has_bias = true});
  Operands flat({.m = 1030, .n = 5184, .k = 256});
  for (int i = 0; i < count_fp8_gemm_configs(); ++i) {
    const Fp8GemmConfig c = get_fp8_gemm_config(i);
    check_config(ring, ring.m, c);
    const int64_t features = c.swap_operands ? c.rows : c.columns;
    const int64_t tokens = c.swap_operands ? c.columns : c.rows;
    const int64_t beside = (flat.n + features - 1) / features;
    check_config(flat, std::min(flat.m, tokens * (140 * c.cluster / beside + 1) - 3), c, true);
  }
}

int run(CheckSize size) {
  check_refusals();
  check_quantisers(counts, size == CheckSize::kTiny);
  check_bf16_input({.m = 9, .n = 320, .k = 384}, kBf16Inputs[1]);
  if (size == CheckSize::kTiny) {
    check_tiny();
  } else if (size == CheckSize::kSmall) {
    check_nan_scales();
    check_ragged({1, 21, 300}, {64, 448}, {128, 640});
    check_bf16_input({.m = 16, .n = 448, .k = 640, .has_bias = true}, kBf16Inputs[2]);
    check_overlapped_chain(5, 1024);
    check_tiny();
  } else {
    check_nan_scales();
    check_ragged({1, 7, 8, 17, 64, 65, 130, 195, 300, 600}, {64, 192, 320, 1088},
                 {128, 256, 896, 1536, 3200});
    Operands heights({.m = 97, .n = 1600, .k = 640, .has_bias = true});
    check_row_heights(heights);
    check_few_rows({.m = 64, .n = 448, .k = 1152, .has_bias = true});
    check_few_rows({.m = 64, .n = 64, .k = 4224, .values = F8Values::kWide, .gap = 128});
    for (const Bf16InputCase& values : kBf16Inputs) {
      check_bf16_input({.m = 16, .n = 192, .k = 128, .values = F8Values::kPatterns}, values);
      check_bf16_input({.m = 16, .n = 1600, .k = 1152, .has_bias = true, .gap = 128}, values);
      check_bf16_input({.m = 16, .n = 64, .k = 2048, .values = F8Values::kWide}, values);
    }
    check_bf16_input({.m = 8, .n = 24576, .k = 4096}, kBf16Inputs[1]);
    check_bf16_input({.m = 3, .n = 4096, .k = 12288, .has_bias = true}, kBf16Inputs[2]);
    check_bf16_input({.m = 1, .n = 192, .k = 36864}, kBf16Inputs[4]);
    check_invariance({.m = 2051, .n = 4608, .k = 4096, .has_bias = true, .exponents = 24});
    check_invariance({.m = 1024, .n = 960, .k = 13696, .values = F8Values::kPatterns});
    for (const int64_t m : {5, 64, 200}) check_overlapped_chain(m, 2048);
    check_tiny();
  }
  std::printf("float8_check: %d comparisons, %d failures\n", counts.comparisons, counts.failures);
  return counts.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
