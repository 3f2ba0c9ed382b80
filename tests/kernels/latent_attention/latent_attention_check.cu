// Latent attention on the device: the forward of training, prefill and decode, and the backward
// pass by head. Values against the host in double; bits across schedules, storage, chunks and
// batches.
//
//   latent_attention_check [small | tiny]      for compute-sanitizer: check_size.h
#include <vector>

#include "tests/kernels/check_size.h"
#include "tests/kernels/latent_attention/latent_checks.h"
#include "tests/kernels/latent_attention/wide_checks.h"

namespace slimexx::kernels::testing {
namespace {

// Blocks have 64 keys, segments 2,048 keys, tiles 64 (token, head) rows. The kernels for few rows
// take up to 8, 16, 24 or 32 rows. Clusters walk up to 16 segments. To keep racecheck short, there
// are only two segments, with queries at the end of the second.
void check_tiny() {
  for (const int64_t heads : {2, 16, 20, 32, 40}) {
    const LatentCase c{.lengths = {3, 2100}, .heads = heads, .last = 2, .seed = 1};
    current_case = describe(c);
    const LatentOperands o(c);
    const LatentResult expected = run_whole(o);
    compare("by segments", o, expected, o.sequences.whole(), {64, LatentRuns::kSplit});
    const auto one = decode_steps(o.sequences, 2, 1), many = decode_steps(o.sequences, 18, 2);
    compare("2 decodes", o, expected, one, {16, LatentRuns::kAuto});
    compare("18 decodes", o, expected, many, {64, LatentRuns::kAuto});
  }
  check_forward({.lengths = {70, 1}, .heads = 3, .seed = 2}, {}, {});
  check_forward({.lengths = {70}, .heads = 3, .list = 65, .last = 3, .seed = 3}, {}, {});
  for (const int64_t heads : {20, 40}) {
    const LatentCase c{
        .lengths = {3, 2100}, .heads = heads, .last = 2, .seed = 30, .f8 = true, .spread = 12};
    current_case = describe(c);
    const LatentOperands o(c);
    const LatentResult expected = run_whole(o);
    compare("whole", o, expected, o.sequences.whole(), {64, LatentRuns::kWhole});
    compare("by segments", o, expected, o.sequences.whole(), {64, LatentRuns::kSplit});
    const auto one = decode_steps(o.sequences, 2, 1), many = decode_steps(o.sequences, 18, 2);
    compare("2 decodes", o, expected, one, {16, LatentRuns::kAuto});
    compare("18 decodes", o, expected, many, {64, LatentRuns::kAuto});
  }
  check_forward({.lengths = {70}, .heads = 3, .list = 65, .last = 3, .seed = 31, .f8 = true}, {64},
                {});
  check_gradients({.lengths = {70, 1}, .heads = 1, .dim = 192, .values = 128, .seed = 4});
  check_gradients({.lengths = {70}, .heads = 1, .list = 20, .seed = 5});
  check_spans({.lengths = {130}, .heads = 1, .dim = 72, .values = 72, .seed = 6});
}

void check_small() {
  check_forward({.lengths = {1}, .heads = 1, .seed = 1}, {64}, {1});
  check_forward({.lengths = {5, 0, 3}, .heads = 20, .gap = 8, .seed = 2}, {16}, {2});
  check_forward({.lengths = {64, 65, 1, 129}, .heads = 3, .seed = 3}, {64}, {4, 20});
  check_forward({.lengths = {33, 70}, .heads = 8, .values = 24, .rotary = 8, .seed = 4}, {16}, {2});
  check_forward({.lengths = {40, 7}, .heads = 128, .seed = 5}, {64}, {2});
  check_forward({.lengths = {2100, 70}, .heads = 20, .last = 4, .seed = 6}, {64}, {2, 20});
  check_forward({.lengths = {33, 0, 70}, .heads = 20, .list = 24, .seed = 7}, {64}, {2});
  check_forward({.lengths = {130}, .heads = 66, .values = 72, .rotary = 32, .list = 65, .seed = 8},
                {16}, {1});
  check_whole_lists({.lengths = {1, 63, 65}, .heads = 4, .seed = 9});
  check_gradients({.lengths = {1}, .heads = 1, .seed = 1});
  check_gradients({.lengths = {5, 0, 3}, .heads = 3, .seed = 2});
  check_gradients({.lengths = {64, 65, 1, 129}, .heads = 2, .dim = 192, .values = 128, .seed = 3});
  check_gradients({.lengths = {33, 70}, .heads = 8, .dim = 24, .values = 16, .list = 8, .seed = 4});
  check_gradients(
      {.lengths = {130, 3}, .heads = 2, .dim = 96, .values = 72, .list = 65, .seed = 5});
  check_whole_list_gradients({.lengths = {70, 1}, .heads = 2, .seed = 6});
  check_spans({.lengths = {64, 129}, .heads = 2, .seed = 7});
}

// FP8 keys give the bits of bf16 keys with the dequantised values, in every kernel.
void check_small_f8() {
  check_forward({.lengths = {1}, .heads = 1, .seed = 41, .f8 = true}, {64}, {1});
  check_forward({.lengths = {5, 0, 3}, .heads = 20, .gap = 8, .seed = 42, .f8 = true}, {16}, {2});
  check_forward({.lengths = {64, 65, 1, 129}, .heads = 3, .seed = 43, .f8 = true}, {64}, {4, 20});
  check_forward(
      {.lengths = {33, 70}, .heads = 8, .values = 24, .rotary = 8, .seed = 44, .f8 = true}, {16},
      {2});
  check_forward({.lengths = {40, 7}, .heads = 128, .seed = 45, .f8 = true, .spread = 20}, {64},
                {2});
  check_forward(
      {.lengths = {2100, 70}, .heads = 20, .last = 4, .seed = 46, .f8 = true, .spread = 40}, {64},
      {2, 20});
  check_forward({.lengths = {33, 0, 70}, .heads = 20, .list = 24, .seed = 47, .f8 = true}, {64},
                {2});
  check_forward({.lengths = {130},
                 .heads = 66,
                 .values = 72,
                 .rotary = 32,
                 .list = 65,
                 .seed = 48,
                 .f8 = true},
                {16}, {1});
}

void check_rest_f8() {
  check_forward({.lengths = {300, 17, 128}, .heads = 20, .seed = 51, .f8 = true}, {16, 64, 128},
                {1, 3, 100});
  check_forward(
      {.lengths = {4200}, .heads = 1, .values = 200, .rotary = 32, .seed = 53, .f8 = true}, {32},
      {1, 5, 6, 64});
  check_forward({.lengths = {6300, 2048, 2049, 70}, .heads = 20, .last = 3, .seed = 54, .f8 = true},
                {64}, {1, 4, 64, 300});
  for (const int64_t heads : {8, 16, 24, 32})
    check_forward({.lengths = {1, 64, 65, 448, 511, 512, 513, 577, 1025, 2047, 2048, 2100},
                   .heads = heads,
                   .last = 1,
                   .seed = 55,
                   .f8 = true,
                   .spread = 30},
                  {64}, {1, 12, 40, 300});
  check_forward({.lengths = {5000, 300}, .heads = 64, .last = 2, .seed = 56, .f8 = true}, {64},
                {1, 2, 40});
  check_forward({.lengths = {2300, 90}, .heads = 4, .list = 2047, .seed = 58, .f8 = true}, {64},
                {2, 30});
  check_forward({.lengths = {6000, 2049},
                 .heads = 128,
                 .list = 2048,
                 .last = 2,
                 .seed = 59,
                 .f8 = true,
                 .spread = 10},
                {64}, {2, 30});
}

void check_rest() {
  check_forward({.lengths = {300, 17, 128}, .heads = 20, .seed = 11}, {16, 64}, {1, 3, 100});
  check_forward({.lengths = {2300, 90, 2048, 2049}, .heads = 2, .seed = 12}, {64, 128},
                {1, 8, 9, 200});
  check_forward({.lengths = {4200}, .heads = 1, .values = 72, .rotary = 32, .seed = 13}, {32},
                {1, 5, 6, 64});
  check_forward({.lengths = {6300, 2048, 2049, 70}, .heads = 20, .last = 3, .seed = 14}, {64},
                {1, 4, 64});
  for (const int64_t heads : {8, 16, 24, 32})
    check_forward({.lengths = {1, 64, 65, 448, 511, 512, 513, 577, 1025, 2047, 2048, 2100},
                   .heads = heads,
                   .last = 1,
                   .seed = 15},
                  {64}, {1, 12, 40});
  check_forward({.lengths = {5000, 300}, .heads = 64, .last = 2, .seed = 16}, {64}, {1, 2, 40});
  check_forward({.lengths = {300, 17}, .heads = 20, .list = 64, .seed = 17}, {16, 64}, {2, 30});
  check_forward({.lengths = {2300, 90}, .heads = 4, .list = 2047, .seed = 18}, {64}, {2, 30});
  check_forward({.lengths = {6000, 2049}, .heads = 128, .list = 2048, .last = 2, .seed = 19}, {64},
                {2, 30});
  check_forward(
      {.lengths = {4200}, .heads = 1, .values = 72, .rotary = 32, .list = 3000, .seed = 20}, {128},
      {1, 30});
  for (const int64_t heads : {1, 20, 64, 128})
    check_whole_lists({.lengths = {2100, 130}, .heads = heads, .last = 3, .seed = 21});
  check_gradients({.lengths = {300, 17, 128}, .heads = 5, .seed = 22});
  check_gradients({.lengths = {700, 40}, .heads = 2, .dim = 192, .values = 128, .seed = 23});
  check_gradients({.lengths = {200, 3}, .heads = 2, .dim = 128, .values = 64, .seed = 24});
  check_gradients({.lengths = {300, 17, 128}, .heads = 5, .list = 64, .seed = 25});
  check_gradients({.lengths = {1200, 90}, .heads = 1, .list = 700, .seed = 26});
  check_whole_list_gradients({.lengths = {300, 64, 65, 1}, .heads = 3, .seed = 27});
  check_whole_list_gradients(
      {.lengths = {1100}, .heads = 1, .dim = 192, .values = 128, .seed = 28});
  check_spans({.lengths = {700, 1, 390}, .heads = 3, .dim = 96, .values = 96, .seed = 29});
}

int run_checks(CheckSize size) {
  if (size == CheckSize::kTiny) {
    check_tiny();
  } else {
    check_small();
    check_small_f8();
    if (size == CheckSize::kAll) check_rest();
    if (size == CheckSize::kAll) check_rest_f8();
  }
  return finish_checks("latent_attention_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run_checks(read_check_size(argc, argv));
}
