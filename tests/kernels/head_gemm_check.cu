// Products of each head's part of a row with the head's own weights, and their input gradient:
// values against sums in double, the bits of launch_gemm for each head alone, with and without a
// rotation in the same kernel; memory around the results untouched.
//
//   head_gemm_check [small | tiny]      for compute-sanitizer: check_size.h
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/head_gemm.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {
namespace {

struct HeadShape {
  int64_t tokens, heads, n, k;
};

// Allowed error of one chain of the tensor cores, relative to the sum of its terms' magnitudes.
constexpr double kChainSlack = 0x1p-16;
constexpr int64_t kRotary = 16;

// `depth` elements per head are multiplied; the head's elements after them are NaN.
struct HeadProduct {
  HeadShape shape;
  bool turned;  // input gradient: the sums run over n of the weights [n, k]
  int64_t depth, features, x_head, y_head;
  Bits x, w, columns;  // [tokens, heads, x_head], [heads, n, k], [heads, features, depth]

  HeadProduct(const HeadShape& s, bool by_input)
      : shape(s),
        turned(by_input),
        depth(by_input ? s.n : s.k),
        features(by_input ? s.k : s.n),
        x_head(depth + 8),
        y_head(features + 24),
        x(random_bf16(s.tokens * s.heads * x_head)),
        w(random_bf16(s.heads * s.n * s.k, 1.0f / std::sqrt(static_cast<float>(depth)))),
        columns(w) {
    for (size_t i = 0; i < x.size(); ++i)
      if (static_cast<int64_t>(i) % x_head >= depth) x[i] = 0x7fff;
    for (int64_t h = 0; turned && h < s.heads; ++h)
      for (int64_t i = 0; i < s.n; ++i)
        for (int64_t j = 0; j < s.k; ++j)
          columns[(h * s.k + j) * s.n + i] = w[(h * s.n + i) * s.k + j];
  }
  HeadGemmArgs args(const Bf16Array& from, const Bf16Array& weights, const Bf16Array& to) const {
    HeadGemmArgs a{.x = from.data(), .w = weights.data(), .y = to.data()};
    a.x_stride = shape.heads * x_head, a.x_head_stride = x_head;
    a.y_stride = shape.heads * y_head, a.y_head_stride = y_head;
    a.tokens = shape.tokens, a.heads = shape.heads, a.n = shape.n, a.k = shape.k;
    return a;
  }
  int64_t results() const { return shape.tokens * shape.heads * y_head; }
};

const char* launch(const HeadProduct& p, const HeadGemmArgs& args) {
  return p.turned ? launch_head_input_grad(args, nullptr) : launch_head_gemm(args, nullptr);
}

std::vector<Exact> multiply_on_host(const HeadProduct& p) {
  std::vector<Exact> sums;
  for (int64_t row = 0; row < p.shape.tokens * p.shape.heads; ++row)
    for (int64_t i = 0; i < p.features; ++i) {
      const uint16_t* x = p.x.data() + row * p.x_head;
      const uint16_t* w = p.columns.data() + (row % p.shape.heads * p.features + i) * p.depth;
      Exact sum;
      for (int64_t j = 0; j < p.depth; ++j) {
        const double term = double{to_float(x[j])} * to_float(w[j]);
        sum.value += term;
        sum.magnitude += std::abs(term);
      }
      sums.push_back(sum);
    }
  return sums;
}

// The result [tokens, heads, features] by one launch_gemm per head.
Bits multiply_heads_alone(const HeadProduct& p, const Bf16Array& x) {
  const Bf16Array columns(p.columns), y(p.shape.tokens * p.shape.heads * p.features);
  for (int64_t h = 0; h < p.shape.heads; ++h)
    expect_no_fault(launch_gemm({.x = x.data() + h * p.x_head,
                                 .w = columns.data() + h * p.features * p.depth,
                                 .y = y.data() + h * p.features,
                                 .m = p.shape.tokens,
                                 .n = p.features,
                                 .k = p.depth,
                                 .y_stride = p.shape.heads * p.features,
                                 .x_stride = p.shape.heads * p.x_head},
                                nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  return y.get();
}

// Checks the product and, in the same kernel, the rotation of the kRotary columns after it.
void check_rotation(const HeadProduct& p, const Bf16Array& x, const Bf16Array& w,
                    const Bits& product) {
  const HeadShape& s = p.shape;
  const Bf16Array rows(random_bf16(s.tokens * s.heads * kRotary)), y(p.results()),
      expected(product);
  const FloatArray cos(random_floats(7 * kRotary / 2)), sin(random_floats(7 * kRotary / 2));
  std::vector<int32_t> host;
  for (int64_t t = 0; t < s.tokens; ++t) host.push_back(static_cast<int32_t>(t * 3 % 7));
  const Array<int32_t> positions(host);
  const HeadRows from{rows.data(), s.heads * kRotary, kRotary};
  const auto after = [&](const Bf16Array& to) {
    return HeadRows{to.data() + p.features, s.heads * p.y_head, p.y_head};
  };
  const RotaryTables tables{cos.data(), sin.data(), positions.data(), kRotary, true};
  expect_no_fault(launch_head_input_grad(
      p.args(x, w, y), {.y = after(y), .x = from, .width = kRotary, .tables = tables}, nullptr));
  expect_status("rotate_head_columns",
                rotate_head_columns(after(expected), from, s.tokens, s.heads, kRotary, tables,
                                    false, nullptr),
                cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("product and rotation", y.get(), expected.get(), p.y_head);
}

void check_product(const HeadShape& s, bool by_input) {
  current_case = std::string(by_input ? "product by the input" : "product") + " of heads, " +
                 std::to_string(s.tokens) + " tokens, " + std::to_string(s.heads) + " heads, " +
                 std::to_string(s.n) + "x" + std::to_string(s.k);
  const HeadProduct p(s, by_input);
  const Bf16Array x(p.x), w(p.w), y(p.results()), again(p.results()), last(s.heads * p.y_head);
  expect_no_fault(launch(p, p.args(x, w, y)));
  expect_no_fault(launch(p, p.args(x, w, again)));
  HeadGemmArgs alone = p.args(x, w, last);
  alone.x = x.data() + (s.tokens - 1) * s.heads * p.x_head, alone.tokens = 1;
  expect_no_fault(launch(p, alone));
  SLX_CUDA(cudaDeviceSynchronize());
  const Bits all = y.get();
  const Bits got = pack_rows(all, s.tokens * s.heads, p.features, p.y_head);
  const Bits one = multiply_heads_alone(p, x);
  expect_close("values, (token, head) rows", got, multiply_on_host(p), p.features, kChainSlack);
  expect_bits("heads alone, (token, head) rows", got, one, p.features);
  Bits spread(all.size(), 0xffff);
  for (int64_t row = 0; row < s.tokens * s.heads; ++row)
    std::copy_n(one.begin() + row * p.features, p.features, spread.begin() + row * p.y_head);
  expect_bits("elements beside the results", all, spread, p.y_head);
  expect_bits("again", again.get(), all, p.y_head);
  expect_bits("the last token alone", last.get(),
              take_rows(all, s.tokens - 1, 1, s.heads * p.y_head), p.y_head);
  if (by_input && rotates_beside_input_grad(p.args(x, w, y))) check_rotation(p, x, w, all);
}

int run(CheckSize size) {
  // Up to 64 tokens the tiles are narrow; above that they have 128 columns.
  std::vector<HeadShape> shapes = {{1, 1, 8, 8}, {3, 2, 72, 136}, {130, 1, 72, 72}};
  if (size != CheckSize::kTiny)
    shapes.insert(shapes.end(), {{3, 20, 256, 512}, {65, 8, 16, 24}, {70, 3, 128, 512}});
  // Tiles of 256 columns need at least as many tiles as multiprocessors.
  if (size == CheckSize::kAll)
    shapes.insert(shapes.end(), {{130, 20, 192, 512},
                                 {257, 2, 72, 72},
                                 {1, 128, 128, 512},
                                 {500, 4, 264, 136},
                                 {900, 20, 256, 264}});
  for (const HeadShape& s : shapes)
    for (const bool by_input : {false, true}) check_product(s, by_input);
  return finish_checks("head_gemm_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
