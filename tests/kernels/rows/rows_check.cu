// Every function of kernels/rows.h against plain host arithmetic in double: values within half a
// unit of the stored type, and bit for bit where the contract says so (a row alone, in place, off
// alignment, again).
//
//   rows_check [small | tiny]      for compute-sanitizer: check_size.h
#include "slimexx/kernels/rows.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/rows/rows_arrays.h"
#include "tests/kernels/rows/rows_f8_cases.h"
#include "tests/kernels/rows/rows_f8_head_cases.h"
#include "tests/kernels/rows/rows_head_cases.h"
#include "tests/kernels/rows/rows_norm_cases.h"
#include "tests/kernels/rows/rows_plain_cases.h"

namespace slimexx::kernels::testing {
namespace {

struct Size {
  int64_t rows, width;
};

std::vector<Size> list_sizes(bool small) {
  std::vector<Size> sizes = {{1, 1}, {5, 7}, {3, 20}, {9, 64}, {2, 100}, {2, 2560}};
  if (small) return sizes;
  for (const Size& more : std::vector<Size>{{700, 1},
                                            {300, 7},
                                            {600, 64},
                                            {1000, 100},
                                            {300, 264},
                                            {530, 2560},
                                            {70, 2561},
                                            {64, 4096},
                                            {17, 5120},
                                            {9, 9728},
                                            {5, 13696},
                                            {3, 16384}}) {
    sizes.push_back(more);
  }
  return sizes;
}

void check_all_heads(bool small) {
  std::vector<HeadCase> cases = {
      {3, 4, 2, 128, 128, false, true, true}, {2, 3, 1, 64, 32, true, true, false},
      {2, 3, 1, 64, 32, false, false, false}, {3, 2, 1, 20, 10, false, true, true},
      {3, 2, 2, 6, 4, true, false, true},     {2, 1, 1, 24, 16, false, true, true}};
  if (!small) {
    for (const HeadCase& more : std::vector<HeadCase>{{600, 32, 8, 128, 128, false, true, true},
                                                      {1100, 5, 2, 64, 64, true, true, true},
                                                      {65, 32, 2, 128, 64, true, false, false},
                                                      {700, 8, 2, 128, 64, true, false, false},
                                                      {530, 3, 1, 128, 64, false, false, true},
                                                      {530, 2, 1, 64, 0, false, true, true},
                                                      {3, 300, 10, 256, 64, false, true, true},
                                                      {5, 70, 9, 128, 96, false, true, true},
                                                      {33, 8, 4, 256, 64, false, true, true},
                                                      {4, 64, 8, 256, 256, false, true, true},
                                                      {7, 3, 1, 8, 8, false, true, true},
                                                      {7, 3, 1, 16, 16, false, true, true},
                                                      {7, 40, 4, 2, 2, false, true, true},
                                                      {9, 3, 3, 40, 0, false, true, true},
                                                      {9, 12, 12, 96, 96, false, false, true}}) {
      cases.push_back(more);
    }
  }
  for (const HeadCase& c : cases) {
    check_heads(c);
    check_f8_heads(c);
  }
}

void check_plain(bool small) {
  for (const Size& s : list_sizes(small)) {
    for (const float scale : {1.0f, 30.0f}) check_swiglu(s.rows, s.width, scale);
    for (const int64_t padding : {0, 8, 3}) check_gather(s.rows + 3, s.rows, s.width, padding);
    check_column_sums(s.rows, s.width);
  }
  check_embedding_backward(40, 20, 50, 9, 0);
  check_embedding_backward(77, 64, 130, 100, 0);
  check_embedding_backward(100, 20, 50, 3, 0);
  check_embedding_backward(100, 24, 50, 3, 0);
  check_embedding_runs({1, 31, 0, 32, 33, 2, 64}, 24);
  if (!small) {
    for (const int64_t padding : {0, 8, 3}) check_gather(2051, 500, 264, padding);
    check_embedding_runs({129, 1, 0, 63, 32, 32, 31, 65, 160, 96, 127, 128, 700, 33}, 264);
    check_embedding_backward(9000, 264, 3000, 7, 0);
    check_embedding_backward(9000, 264, 3000, 7, 1);
    check_embedding_backward(20000, 20, 151936, 3000, 0);
    check_embedding_backward(3000, 2560, 200, 150, 0);
    check_column_sums(40000, 33);
  }
  std::vector<int64_t> lengths = {1, 8, 4097, 9000};
  if (!small) lengths.push_back(1000003);
  for (const int64_t n : lengths) {
    for (const int64_t shift : {0, 1}) {
      check_elementwise<uint16_t>(n, shift);
      check_elementwise<float>(n, shift);
      check_convert<uint16_t, float>(n, shift);
      check_convert<float, uint16_t>(n, shift);
      check_convert<uint16_t, uint16_t>(n, shift);
      check_convert<float, float>(n, shift);
    }
  }
}

// All pointers are null, so a kernel that is launched anyway fails.
void check_nothing_to_do() {
  current_case = "no rows";
  const cudaError_t none = cudaSuccess;
  expect_status("rms_norm_forward", rms_norm_forward(0, 8, 0, 8, 0, 0, 8, kEps, 0), none);
  expect_status("add_rms_norm", add_rms_norm_forward(0, 0, 0, 0, 0, 0, 0, 8, kEps, 0), none);
  expect_status("rms_norm_backward",
                rms_norm_backward(0, 8, 0, 0, 8, 0, 8, 0, 0, 8, kEps, true, 0, 0), none);
  const QkvShape heads{0, 2, 1, 8};
  expect_status("qk", qk_norm_rotary_forward(0, 4, 0, 0, 0, kEps, {}, {}, heads, 0), none);
  expect_status("qk backward", qk_norm_rotary_backward(0, 0, 0, 0, 0, 0, kEps, {}, heads, 0, 0),
                none);
  expect_status("swiglu_forward", swiglu_forward(0, 0, 0, 8, 0), none);
  expect_status("swiglu_backward", swiglu_backward(0, 0, 0, 0, 0, 8, 0), none);
  expect_status("gather_rows", gather_rows(0, 8, 0, 8, 0, 0, 8, 0), none);
  expect_status("copy_rows", copy_rows(0, 8, 0, 8, 0, 8, 0), none);
  expect_status("scatter_add_rows", scatter_add_rows(0, 8, 0, 8, 0, 0, 8, 0), none);
  expect_status("embedding_backward", embedding_backward(0, 0, 0, 0, 8, 8, 0, 0), none);
  expect_status("add", add(0, 0, 0, Element::kF32, 0, 0), none);
  expect_status("add_scaled", add_scaled(0, 0, 1, Element::kF32, 0, 0), none);
  expect_status("scale", scale(0, 1, Element::kBF16, 0, 0), none);
  expect_status("convert", convert(0, Element::kF32, 0, Element::kBF16, 0, 0), none);
  expect_status("column_sums", column_sums(0, 0, 8, 0, 8, 0, 0), none);
  expect_status("synchronise", cudaDeviceSynchronize(), none);
  const cudaError_t invalid = cudaErrorInvalidValue;
  for (int64_t count = 2; count < 2000000; count += count / 2) {
    const auto more = embedding_backward_workspace(count, 151936);
    const auto fewer = embedding_backward_workspace(count - 1, 151936);
    ++comparisons;
    if (fewer <= more) continue;
    ++failures;
    std::printf("FAIL embedding_backward_workspace(%ld) is %zu, of one less %zu\n", long(count),
                more, fewer);
  }
  current_case = "sizes that are not served";
  expect_status("width", rms_norm_forward(0, 0, 0, 0, 0, 1, 16385, kEps, 0), invalid);
  expect_status("no width", rms_norm_backward(0, 0, 0, 0, 0, 0, 0, 0, 1, 0, kEps, false, 0, 0),
                invalid);
  expect_status("rows", swiglu_forward(0, 0, -1, 8, 0), invalid);
  KvPages no_scales;
  no_scales.k = no_scales.v = reinterpret_cast<void*>(16);
  no_scales.round_f8 = true;
  expect_status("FP8 pages without scales",
                qk_norm_rotary_forward(0, 3, 0, 0, 0, kEps, {}, no_scales, {1, 1, 1, 8}, 0),
                invalid);
  const auto forward = [](int64_t out_heads, void* in, const QkvShape& shape) {
    return qk_norm_rotary_forward(0, out_heads, in, 0, 0, kEps, {}, {}, shape, 0);
  };
  expect_status("odd head", forward(3, 0, {1, 1, 1, 7}), invalid);
  expect_status("wide head", forward(3, 0, {1, 1, 1, 264}), invalid);
  expect_status("queries alone", forward(1, reinterpret_cast<void*>(16), {1, 1, 1, 8}), invalid);
  expect_status("in place without values", forward(2, 0, {1, 1, 1, 8}), invalid);
}

int run(bool small) {
  check_nothing_to_do();
  for (const Size& s : list_sizes(small)) {
    check_norm(s.rows, s.width);
    check_layer_norm(s.rows, s.width);
    for (const bool yes : {false, true}) {
      check_add_norm(s.rows, s.width, yes);
      check_norm_backward(s.rows, s.width, yes);
    }
  }
  check_all_heads(small);
  check_plain(small);
  check_latent(small);
  check_f8_rows(small);
  return finish_checks("rows_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv) != CheckSize::kAll);
}
