// Times key selection for sparse attention with the sizes of GLM-5: 32 index heads of 128, the best
// 2,048 keys per query. Decode over pages, and training with 256 rows at a time.
//   sparse_index_bench [repeats]
// The lower bound for decode is the time to read the index keys at a copy's rate (read plus
// written). FLOPs of training are those of the scores up to each query's own position.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/sparse_index.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rows/rows_arrays.h"
#include "tests/kernels/sparse_index/index_case.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int kTopK = 2048;

// TB/s of a copy, read plus written.
double time_copy(int repeats) {
  const DeviceArray<uint8_t> from(int64_t{1} << 30), to(int64_t{1} << 30);
  const double us = median_us(repeats, [&] {
    SLX_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.count()),
                             cudaMemcpyDeviceToDevice));
  });
  const double rate = 2.0 * static_cast<double>(from.count()) / us * 1e-6;
  std::printf("copy: %.2f TB/s\n", rate);
  return rate;
}

// `columns`: the graph's upper bound on keys, at least keys_each. `f8`: FP8 keys.
void time_decode(int sequences, int keys_each, int columns, int page, double copy, int repeats,
                 bool f8 = false) {
  const IndexCase c{.lengths = std::vector<int32_t>(sequences, keys_each), .last = 1, .f8 = f8};
  const IndexOperands operands(c);
  const IndexBatch batch(operands, operands.sequences.whole(),
                         {.page_tokens = page, .columns = columns, .most_keys = columns});
  const Array<int32_t> selected(int64_t{sequences} * kTopK);
  const IndexScores scores = batch.score(0, sequences, kTopK);
  const KeySelection best = batch.select(0, sequences, kTopK, selected.data());
  const double score_us = median_us(repeats, [&] { SLX_CUDA(index_scores(scores, nullptr)); });
  const double both_us = median_us(repeats, [&] {
    SLX_CUDA(index_scores(scores, nullptr));
    SLX_CUDA(select_keys(best, nullptr));
  });
  const double key_bytes = f8 ? double(c.dim + 2) : 2.0 * double(c.dim);
  const double bytes = sequences * double(keys_each) * key_bytes;
  const double bound = bytes / copy * 1e-6;
  std::printf(
      "decode, %s keys, %d x %d keys of %d, pages of %d: scores %.1f us, %.0f GB/s, %.0f %% of "
      "copy; with "
      "the selection %.1f us, %.2f times reading the keys\n",
      f8 ? "FP8" : "bf16", sequences, keys_each, columns, page, score_us, bytes / score_us * 1e-3,
      100 * bound / score_us, both_us, both_us / bound);
}

void time_training(const std::vector<int32_t>& lengths, int repeats) {
  constexpr int64_t kRows = 256;
  const IndexCase c{.lengths = lengths};
  const IndexOperands operands(c);
  const IndexBatch batch(operands, operands.sequences.whole(),
                         {.columns = operands.sequences.num_keys(), .score_rows = kRows});
  const Array<int32_t> selected(batch.rows() * kTopK);
  double pairs = 0;
  for (const int32_t n : lengths)
    if (n > kTopK) pairs += 0.5 * (double(n) * n - double(kTopK) * kTopK);
  const auto run = [&](bool selects) {
    for (int64_t first = 0; first < batch.rows(); first += kRows) {
      const int64_t n = std::min(kRows, batch.rows() - first);
      SLX_CUDA(index_scores(batch.score(first, n, kTopK), nullptr));
      if (!selects) continue;
      SLX_CUDA(
          select_keys(batch.select(first, n, kTopK, selected.data() + first * kTopK), nullptr));
    }
  };
  const double score_us = median_us(repeats, [&] { run(false); });
  const double both_us = median_us(repeats, [&] { run(true); });
  const double rate = 2.0 * pairs * double(c.heads * c.dim) / score_us * 1e-6;
  std::printf(
      "training, %zu x %d: scores %.1f us, %.0f TFLOP/s, %.0f %% of 989; with the selection %.1f "
      "us, %.0f TFLOP/s\n",
      lengths.size(), lengths[0], score_us, rate, 100 * rate / 989, both_us,
      rate * score_us / both_us);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  const double copy = time_copy(repeats);
  for (const int page : {16, 64}) time_decode(64, 32768, 32768, page, copy, repeats);
  time_decode(64, 32768, 32768, 64, copy, repeats, true);
  time_decode(1, 32768, 32768, 64, copy, repeats);
  time_decode(8, 131072, 131072, 64, copy, repeats);
  time_decode(64, 4096, 131072, 64, copy, repeats);
  time_training({32768}, std::min(repeats, 5));
  time_training(std::vector<int32_t>(4, 8192), std::min(repeats, 5));
}
