// Checks grouped FP8 products. Every compiled variant, with y in bf16 and in f32: bit by bit
// against the reference of the dense product with each expert's weights, for random, ragged, empty
// and full experts, and for one row of x that all experts read. Rows after the experts' must not be
// written. Few rows of x are also given in bf16, for products that quantise them.
//
//   float8_experts_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <vector>

#include "slimexx/kernels/rows.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/float8/bf16_input.cuh"
#include "tests/kernels/float8/grouped_operands.cuh"
#include "tests/kernels/float8/quantise_data.cuh"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kGuard = 4096;  // elements after y that must keep their poison
CheckCounts counts;

struct Operands : GroupedFloat8Operands {
  explicit Operands(const GroupedFloat8Case& c)
      : GroupedFloat8Operands(c), y(m * n + kGuard), expected(m * n), sums(m * n) {
    compute_expected();
  }
  void compute_expected(bool one_x_row = false) const {
    multiply_reference(expected.data(), sums.data(), one_x_row);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  DeviceArray<float> y;  // bf16 products use half of it
  DeviceArray<__nv_bfloat16> expected;
  DeviceArray<float> sums;
};

void print_case(const GroupedFloat8Case& c, const Fp8GemmConfig& g) {
  constexpr const char* kSpreads[] = {"random", "ragged", "one expert", "distinct", "even"};
  std::printf(
      "%ld rows and room for %ld, %ld experts, n %ld k %ld, %s, %s, seed %lu, %s %dx%d "
      "tokens %d cluster %d lead %d",
      long(c.rows), long(c.room), long(c.experts), long(c.n), long(c.k),
      kSpreads[static_cast<int>(c.spread)], name_values(c.values),
      static_cast<unsigned long>(c.seed), g.swap_operands ? "swapped" : "plain", g.rows, g.columns,
      g.tokens, g.cluster, g.lead);
}

template <class Bits>
void compare(const Operands& o, const Fp8GemmConfig& c, const Bits* expected) {
  static DeviceArray<Difference> differences(2);
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  compare_product<<<1024, 256>>>(reinterpret_cast<const Bits*>(o.y.data()), o.n, o.m * o.n + kGuard,
                                 expected, o.of.rows, o.n, differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  if (!counts.fails(found[0].count + found[1].count == 0)) return;
  std::printf("FAIL %s, ", sizeof(Bits) == 4 ? "f32" : "bf16");
  print_case(o.of, c);
  const char* const what[2] = {"elements differ", "elements after the experts' were written"};
  for (int i = 0; i < 2; ++i) {
    if (found[i].count == 0) continue;
    const auto at = static_cast<int64_t>(found[i].first);
    std::printf(": %llu %s, first at row %ld column %ld", found[i].count, what[i], long(at / o.n),
                long(at % o.n));
  }
  std::printf("\n");
}

// `product` has the arguments except y and its type.
void check_product(const Operands& o, Fp8GroupedGemmArgs product, const Fp8GemmConfig& c,
                   GemmOutput output) {
  const bool f32 = output == GemmOutput::kF32;
  SLX_CUDA(cudaMemset(o.y.data(), 0xff, static_cast<size_t>(o.m * o.n + kGuard) * (f32 ? 4 : 2)));
  product.y = o.y.data();
  product.output = output;
  if (const char* fault = launch_fp8_grouped_gemm(product, c, nullptr)) {
    if (counts.fails(false)) {
      std::printf("FAIL launch: %s: ", fault);
      print_case(o.of, c);
      std::printf("\n");
    }
    return;
  }
  if (f32) {
    compare(o, c, reinterpret_cast<const uint32_t*>(o.sums.data()));
  } else {
    compare(o, c, reinterpret_cast<const uint16_t*>(o.expected.data()));
  }
}

void check_config(const Operands& o, const Fp8GroupedGemmArgs& product, const Fp8GemmConfig& c) {
  check_product(o, product, c, GemmOutput::kBf16);
  check_product(o, product, c, GemmOutput::kF32);
}

bool suits(const Fp8GemmConfig& c, const Fp8GroupedGemmArgs& product) {
  return product.x_is_bf16 ? suits_fp8_bf16_input(c) : c.swap_operands || !product.one_x_row;
}

// h of all rows against the SwiGLU kernel of the expected product.
void check_swiglu(const Operands& o, Fp8GroupedGemmArgs product) {
  if (o.n % 128 != 0) return;
  static DeviceArray<Difference> differences(2);
  const int64_t f = o.n / 2, count = o.m * f + kGuard;
  const DeviceArray<__nv_bfloat16> expected(o.m * f);
  SLX_CUDA(swiglu_forward(expected.data(), o.expected.data(), o.of.rows, f, nullptr));
  product.y = o.y.data();
  const auto check = [&](const Fp8GemmConfig& c) {
    SLX_CUDA(cudaMemset(o.y.data(), 0xff, static_cast<size_t>(count) * 2));
    const char* fault = launch_fp8_grouped_gemm_swiglu(product, c, nullptr);
    Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
    SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
    compare_product<<<1024, 256>>>(reinterpret_cast<const uint16_t*>(o.y.data()), f, count,
                                   reinterpret_cast<const uint16_t*>(expected.data()), o.of.rows, f,
                                   differences.data());
    SLX_CUDA(cudaDeviceSynchronize());
    SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
    if (!counts.fails(fault == nullptr && found[0].count + found[1].count == 0)) return;
    std::printf("FAIL SwiGLU, %s: %llu elements differ, %llu after the experts' were written, ",
                fault == nullptr ? "queued" : fault, found[0].count, found[1].count);
    print_case(o.of, c);
    std::printf("\n");
  };
  check(choose_fp8_grouped_swiglu_config(product));
  for (int i = 0; i < count_fp8_grouped_gemm_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_grouped_gemm_config(i);
    if (!suits_fp8_grouped_swiglu(c) || !suits(c, product)) continue;
    check(c);
    if (!c.swap_operands) continue;
    c.tokens = std::max(1, c.columns - 5);
    c.rows -= 16;
    check(c);
  }
}

void check_all_configs(const Operands& o, const Fp8GroupedGemmArgs& product) {
  check_swiglu(o, product);
  check_config(o, product, choose_fp8_grouped_gemm_config(product));
  for (int i = 0; i < count_fp8_grouped_gemm_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_grouped_gemm_config(i);
    if (!suits(c, product)) continue;
    check_config(o, product, c);
    if (!c.swap_operands) {
      c.lead = c.lead == 0 ? 1 : 0;
    } else {
      c.tokens = std::max(1, c.columns - 5);
      c.rows -= 24;
    }
    check_config(o, product, c);
  }
}

// The same product with x in bf16, if products quantise so few rows.
void check_bf16_input(const Operands& o, Fp8GroupedGemmArgs product) {
  if (!fp8_gemm_quantises(product.one_x_row ? 1 : o.m, o.k)) return;
  for (const Bf16InputCase& values : kBf16Inputs) {
    const Bf16Input input(o, values);
    input.replace(product);
    o.compute_expected(product.one_x_row);
    product.follows_product = !product.follows_product;
    check_all_configs(o, product);
  }
}

void check_case(const GroupedFloat8Case& c) {
  const Operands o(c);
  Fp8GroupedGemmArgs product = o.grouped(nullptr);
  check_all_configs(o, product);
  product.follows_product = true;
  product.rows.likely = 0;
  check_config(o, product, choose_fp8_grouped_gemm_config(product));
  check_bf16_input(o, product);
}

// A single token: every expert's row is row 0 of x.
void check_one_row(int64_t rows, int64_t experts, int64_t n, int64_t k) {
  Operands o({rows, experts, n, k, ExpertRows::kDistinct});
  o.compute_expected(true);
  Fp8GroupedGemmArgs product = o.grouped(nullptr);
  product.one_x_row = true;
  product.x_scale_stride = fp8_scale_stride(o.m);
  check_all_configs(o, product);
  // The scales of one row alone.
  DeviceArray<float> scales(k / 128 * 4);
  SLX_CUDA(cudaMemcpy2D(scales.data(), 16, o.x_scales.data(),
                        static_cast<size_t>(fp8_scale_stride(o.m)) * 4, 16,
                        static_cast<size_t>(k / 128), cudaMemcpyDeviceToDevice));
  product.x_scales = scales.data();
  product.x_scale_stride = 0;
  product.follows_product = true;
  check_all_configs(o, product);
  check_bf16_input(o, product);
}

// A chain of quantisations and products with square weights, launched early one after the other,
// must end with the bits of one that waits for each kernel. So must a chain of products that
// quantise x themselves.
void check_chain(const GroupedFloat8Case& sizes) {
  constexpr int kLinks = 16;
  const Operands o(sizes);
  DeviceArray<__nv_bfloat16> start(o.m * o.n), a(o.m * o.n), b(o.m * o.n);
  DeviceArray<uint8_t> q(o.m * o.n);
  DeviceArray<float> scales(o.n / 128 * fp8_scale_stride(o.m));
  fill_normal<<<1024, 256>>>(start.data(), start.count(), 41, 1.0f);
  for (int index = 0; index < count_fp8_grouped_gemm_configs(); ++index) {
    const Fp8GemmConfig c = get_fp8_grouped_gemm_config(index);
    const char* fault = nullptr;
    enum class Chain { kWaiting, kEarly, kBf16Input };
    for (const Chain chain : {Chain::kWaiting, Chain::kEarly, Chain::kBf16Input}) {
      const bool early = chain != Chain::kWaiting, bf16 = chain == Chain::kBf16Input;
      if (bf16 && !(fp8_gemm_quantises(o.m, o.n) && suits_fp8_bf16_input(c))) continue;
      const __nv_bfloat16* from = start.data();
      for (int link = 0; link < kLinks; ++link) {
        __nv_bfloat16* to = link % 2 == 0 ? a.data() : b.data();
        const char* first =
            bf16 ? nullptr
                 : launch_quantise_rows(
                       {.x = from, .q = q.data(), .scales = scales.data(), .m = o.m, .k = o.n},
                       nullptr);
        if (!early) SLX_CUDA(cudaDeviceSynchronize());
        Fp8GroupedGemmArgs product = o.grouped(to);
        product.x = bf16 ? static_cast<const void*>(from) : q.data();
        product.x_scales = scales.data();
        product.x_is_bf16 = bf16;
        product.follows_product = link > 0;
        const char* second = launch_fp8_grouped_gemm(product, c, nullptr);
        if (!early) SLX_CUDA(cudaDeviceSynchronize());
        if (first != nullptr || second != nullptr) fault = first != nullptr ? first : second;
        from = to;
      }
      SLX_CUDA(cudaDeviceSynchronize());
      if (!early) {
        SLX_CUDA(cudaMemcpy(o.expected.data(), from, static_cast<size_t>(o.m * o.n * 2),
                            cudaMemcpyDeviceToDevice));
        continue;
      }
      const Difference difference = compare_rows(b, o.expected, o.m, o.n);
      if (!counts.fails(difference.count == 0 && fault == nullptr)) continue;
      std::printf("FAIL chain%s, %s: %llu elements differ: ", bf16 ? ", x in bf16" : "",
                  fault == nullptr ? "queued" : fault, difference.count);
      print_case(o.of, c);
      std::printf("\n");
    }
  }
}

void check_refusals() {
  const GroupedFloat8Operands o({.rows = 8, .experts = 4, .n = 64, .k = 128});
  DeviceArray<float> y(8 * 64);
  const auto refuses = [&](const char* what, const auto& change) {
    Fp8GroupedGemmArgs args = o.grouped(y.data());
    change(args);
    if (counts.fails(launch_fp8_grouped_gemm(args, nullptr) != nullptr))
      std::printf("FAIL: %s was not refused\n", what);
  };
  refuses("n of 72", [](Fp8GroupedGemmArgs& a) { a.n = 72; });
  refuses("k of 64", [](Fp8GroupedGemmArgs& a) { a.k = 64; });
  refuses("negative rows", [](Fp8GroupedGemmArgs& a) { a.rows.rows = -1; });
  refuses("no experts", [](Fp8GroupedGemmArgs& a) { a.rows.experts = 0; });
  refuses("400 experts", [](Fp8GroupedGemmArgs& a) { a.rows.experts = 400; });
  refuses("null offsets", [](Fp8GroupedGemmArgs& a) { a.rows.offsets = nullptr; });
  refuses("null w", [](Fp8GroupedGemmArgs& a) { a.w = nullptr; });
  refuses("misaligned scales of x", [](Fp8GroupedGemmArgs& a) { ++a.x_scales; });
  refuses("x_scale_stride below the rows", [](Fp8GroupedGemmArgs& a) { a.x_scale_stride = 4; });
  refuses("17 rows of bf16", [](Fp8GroupedGemmArgs& a) { a.x_is_bf16 = true, a.rows.rows = 17; });
  refuses("x_stride of 132", [](Fp8GroupedGemmArgs& a) { a.x_is_bf16 = true, a.x_stride = 132; });
  refuses("8 rows of 4 experts for one row of x",
          [](Fp8GroupedGemmArgs& a) { a.one_x_row = true; });
  Fp8GroupedGemmArgs none = o.grouped(y.data());
  none.rows.rows = 0;
  none.x = nullptr;
  if (counts.fails(launch_fp8_grouped_gemm(none, nullptr) == nullptr))
    std::printf("FAIL: 0 rows\n");
}

// Experts of every spread, with and without room for more rows.
void check_spreads(int64_t rows, int64_t experts, int64_t n, int64_t k) {
  int turn = 0;
  for (const ExpertRows spread : {ExpertRows::kRandom, ExpertRows::kRagged, ExpertRows::kOne,
                                  ExpertRows::kDistinct, ExpertRows::kEven}) {
    check_case({rows, experts, n, k, spread, turn % 2 == 0 ? 0 : 150,
                static_cast<F8Values>(turn % 4), static_cast<uint64_t>(60 + turn)});
    ++turn;
  }
}

void check_tiny() {
  check_case(
      {.rows = 150, .experts = 5, .n = 384, .k = 640, .spread = ExpertRows::kRagged, .room = 9});
  check_one_row(3, 7, 384, 256);
  check_case(
      {.rows = 6, .experts = 5, .n = 256, .k = 384, .spread = ExpertRows::kRagged, .room = 2});
}

int run(CheckSize size) {
  check_refusals();
  check_tiny();
  if (size == CheckSize::kSmall) check_spreads(300, 9, 192, 384);
  if (size == CheckSize::kAll) {
    for (const int64_t rows : {1, 7, 64, 130, 700}) {
      check_spreads(rows, 9, 320, 1152);
      check_spreads(rows, 9, 384, 640);
    }
    for (const int64_t n : {64, 128, 192, 448}) check_spreads(333, 17, n, 128);
    check_spreads(1200, 384, 192, 256);
    check_spreads(500, 1, 1088, 3200);
    // gate_up and down of Qwen3-30B-A3B and GLM-4.7-Flash
    constexpr int64_t kSizes[4][2] = {{1536, 2048}, {2048, 768}, {3072, 2048}, {2048, 1536}};
    for (const auto& [n, k] : kSizes) {
      check_case({.rows = 8192, .experts = 32, .n = n, .k = k, .room = 40});
      check_case({.rows = 500, .experts = 64, .n = n, .k = k});
      check_case({.rows = 40, .experts = 64, .n = n, .k = k, .spread = ExpertRows::kRagged});
      check_one_row(8, 64, n, k);
    }
    for (const int64_t rows : {2, 8, 16}) {
      for (const ExpertRows spread :
           {ExpertRows::kRandom, ExpertRows::kRagged, ExpertRows::kOne, ExpertRows::kDistinct})
        check_case({rows, 24, 640, 1152, spread});
    }
    check_one_row(1, 1, 448, 4224);
    for (const int64_t rows : {6, 400, 3000})
      check_chain({.rows = rows, .experts = 16, .n = 1024, .k = 1024});
  }
  std::printf("float8_experts_check: %d comparisons, %d failures\n", counts.comparisons,
              counts.failures);
  return counts.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
