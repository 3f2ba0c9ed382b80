// Key selection for sparse attention on the device. Compares scores with the host's in double,
// selections with a sort, and bits across storage, chunks, runs of rows and batches. This family
// has no backward pass; latent_attention_check checks gradients over selected keys.
//
//   sparse_index_check [small | tiny]      for compute-sanitizer: check_size.h
#include <vector>

#include "tests/kernels/check_size.h"
#include "tests/kernels/sparse_index/score_checks.h"
#include "tests/kernels/sparse_index/selection_checks.h"

namespace slimexx::kernels::testing {
namespace {

// Tiles have one query, or 256 / heads queries with heads padded to 16, 32 or 64; key blocks have
// 64 keys.
void check_all_scores(CheckSize size) {
  if (size == CheckSize::kTiny) {
    for (const int64_t heads : {5, 32, 64})
      check_scores({.lengths = {70, 3}, .heads = heads, .dim = 128, .seed = 1}, {64});
    check_scores({.lengths = {33}, .heads = 17, .dim = 40, .seed = 2}, {});
    for (const int64_t heads : {5, 32})
      check_scores({.lengths = {70, 3}, .heads = heads, .seed = 21, .f8 = true}, {64});
    return;
  }
  check_scores({.lengths = {1}, .heads = 1, .dim = 8, .seed = 1}, {16});
  check_scores({.lengths = {5, 0, 3}, .heads = 16, .dim = 16, .seed = 2}, {16, 64});
  check_scores({.lengths = {64, 65, 1, 129}, .seed = 3}, {16, 128});
  check_scores({.lengths = {130, 33}, .heads = 5, .dim = 40, .seed = 4}, {64});
  check_scores({.lengths = {70, 200}, .heads = 64, .dim = 64, .seed = 5}, {64});
  check_scores({.lengths = {33}, .heads = 17, .dim = 72, .seed = 6}, {32});
  check_scores({.lengths = {5, 0, 3}, .heads = 16, .dim = 16, .seed = 22, .f8 = true}, {16, 64});
  check_scores({.lengths = {64, 65, 1, 129}, .seed = 23, .f8 = true, .spread = 12}, {16, 128});
  check_scores({.lengths = {130, 33}, .heads = 5, .dim = 48, .seed = 24, .f8 = true}, {64});
  check_scores({.lengths = {70, 200}, .heads = 64, .dim = 64, .seed = 25, .f8 = true}, {64});
  check_scores({.lengths = {33}, .heads = 17, .dim = 112, .seed = 26, .f8 = true}, {32});
  check_nan_key();
  if (size != CheckSize::kAll) return;
  check_scores({.lengths = {300, 17}, .heads = 64, .seed = 7}, {16, 64});
  check_scores({.lengths = {2, 2049}, .seed = 8}, {64});
  check_scores({.lengths = {300, 17}, .heads = 64, .seed = 27, .f8 = true, .spread = 30}, {16, 64});
  check_scores({.lengths = {2, 2049}, .seed = 28, .f8 = true}, {64});
  check_scores({.lengths = {40000, 5000}, .last = 33, .seed = 29, .f8 = true}, {64});
  check_scores({.lengths = std::vector<int32_t>(75, 7), .heads = 16, .dim = 16, .seed = 9}, {16});
  check_scores({.lengths = {40000, 5000}, .dim = 16, .last = 33, .seed = 10}, {64});
}

// The kernel uses one thread block per row, and from 8,192 keys on a cluster of 2, 4 or 8.
void check_all_selections(CheckSize size) {
  const auto check = [](int32_t keys, int64_t rows, int64_t k) {
    for (const float spread : {1.0f, 3000.0f})
      check_selection(SelectionCase({0, keys}, keys - rows, rows, k, spread));
  };
  check(1, 1, 1);
  check(70, 3, 20);
  for (const int32_t keys : {8300, 16500, 33000}) check(keys, 1, 2048);
  check_choice({.lengths = {70, 3}, .heads = 4, .dim = 64, .seed = 11}, 0, 20);
  check_choice({.lengths = {70, 3}, .heads = 4, .dim = 64, .last = 1, .seed = 12}, 64, 20);
  if (size == CheckSize::kTiny) return;
  std::vector<int32_t> many = {0};
  for (int32_t i = 0; i < 80; ++i) many.push_back(many.back() + i % 5 * (i % 9));
  const int64_t tokens = many.back();
  check_selection(SelectionCase(many, 0, tokens + 4, 5, 1.0f));
  check_selection(SelectionCase(many, tokens / 3, tokens / 2, 20, 50.0f));
  check(33, 33, 20);
  check(2049, 30, 2048);
  if (size != CheckSize::kAll) return;
  for (const int64_t k : {1, 20, 2048, 5000}) {
    check(2049, 300, k);
    for (const int64_t rows : {1, 20, 60, 100}) check(40000, rows, k);
  }
  check_choice({.lengths = {700, 90, 2500}, .seed = 13}, 0, 64);
  check_choice({.lengths = {700, 90, 2500}, .seed = 14}, 64, 2048);
  check_choice({.lengths = {40000, 2050, 2051, 33, 2}, .heads = 4, .last = 1, .seed = 15}, 64,
               2048);
}

int run(CheckSize size) {
  check_all_scores(size);
  check_all_selections(size);
  return finish_checks("sparse_index_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
