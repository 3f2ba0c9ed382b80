// Times the choice of keys for sparse attention in the sizes of GLM-5: 32 index heads of 128, the
// best 2,048 keys of a query; as decodes over pages and as training does it, 256 rows at a time.
//   sparse_index_bench [repeats]
// A decode's bound is the time to read its index keys at the rate of a copy's reads and writes
// together; training's FLOPs are those of scores up to each query's own position.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/sparse_index.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16 = __nv_bfloat16;
constexpr int kHeads = 32, kDim = 128, kTopK = 2048;

void fill(const DeviceArray<Bf16>& array, uint64_t seed) {
  fill_normal<<<1024, 256>>>(array.data(), array.count(), seed, 1.0f);
  SLX_CUDA(cudaGetLastError());
}

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
  DeviceArray<T> array(static_cast<int64_t>(host.size()));
  SLX_CUDA(cudaMemcpy(array.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return array;
}

std::vector<float> random_weights(int64_t count) {
  std::vector<float> weights(static_cast<size_t>(count));
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  for (float& weight : weights) weight = normal(random);
  return weights;
}

// TB/s of read and write together.
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

// `columns`: what a graph's shape allows, at least keys_each.
void time_decode(int sequences, int keys_each, int columns, int page, double copy, int repeats) {
  const int width = columns / page, pages = (keys_each + page - 1) / page * sequences;
  std::vector<int32_t> cu(static_cast<size_t>(sequences) + 1), order(static_cast<size_t>(pages)),
      table(static_cast<size_t>(width) * sequences),
      contexts(static_cast<size_t>(sequences), keys_each - 1);
  std::iota(cu.begin(), cu.end(), 0);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  const int own = pages / sequences;
  for (int b = 0; b < sequences; ++b) {
    std::copy_n(order.begin() + static_cast<int64_t>(b) * own, own,
                table.begin() + static_cast<int64_t>(b) * width);
  }
  const auto device_cu = upload(cu), device_contexts = upload(contexts),
             device_table = upload(table);
  const auto weights = upload(random_weights(int64_t{sequences} * kHeads));
  DeviceArray<Bf16> q(int64_t{sequences} * kHeads * kDim), keys(int64_t{pages} * page * kDim);
  DeviceArray<float> scores(int64_t{sequences} * columns);
  DeviceArray<int32_t> selected(int64_t{sequences} * kTopK);
  fill(q, 1);
  fill(keys, 2);
  IndexScores s;
  s.rows = {.cu_seqlens = device_cu.data(), .context_lens = device_contexts.data()};
  s.rows.sequences = s.rows.rows = sequences;
  s.rows.max_query_len = 1, s.rows.max_key_len = columns;
  s.q = q.data(), s.keys = keys.data(), s.weights = weights.data(), s.scores = scores.data();
  s.q_stride = kHeads * kDim, s.key_stride = kDim, s.score_stride = columns;
  s.heads = kHeads, s.head_dim = kDim, s.key_rows = int64_t{pages} * page;
  s.page_table = device_table.data(), s.page_table_stride = width, s.page_tokens = page;
  s.top_k = kTopK, s.scale = 1.0f / std::sqrt(float{kDim});
  const KeySelection k{.rows = s.rows,
                       .scores = scores.data(),
                       .selected = selected.data(),
                       .score_stride = columns,
                       .k = kTopK};
  const double score_us = median_us(repeats, [&] { SLX_CUDA(index_scores(s, nullptr)); });
  const double both_us = median_us(repeats, [&] {
    SLX_CUDA(index_scores(s, nullptr));
    SLX_CUDA(select_keys(k, nullptr));
  });
  const double bytes = 2.0 * sequences * double(keys_each) * kDim;
  const double bound = bytes / copy * 1e-6;
  std::printf(
      "decode, %d x %d keys of %d, pages of %d: scores %.1f us, %.0f GB/s, %.0f %% of copy; with "
      "the selection %.1f us, %.2f times reading the keys\n",
      sequences, keys_each, columns, page, score_us, bytes / score_us * 1e-3,
      100 * bound / score_us, both_us, both_us / bound);
}

void time_training(const std::vector<int>& lengths, int repeats) {
  constexpr int kRows = 256;
  std::vector<int32_t> cu{0};
  double pairs = 0;
  for (const int n : lengths) {
    cu.push_back(cu.back() + n);
    if (n > kTopK) pairs += 0.5 * (double(n) * n - double(kTopK) * kTopK);
  }
  const int64_t tokens = cu.back();
  const auto device_cu = upload(cu);
  const auto weights = upload(random_weights(tokens * kHeads));
  DeviceArray<Bf16> q(tokens * kHeads * kDim), keys(tokens * kDim);
  DeviceArray<float> scores(int64_t{kRows} * tokens);
  DeviceArray<int32_t> selected(tokens * kTopK);
  fill(q, 1);
  fill(keys, 2);
  const auto run = [&](bool selects) {
    for (int64_t first = 0; first < tokens; first += kRows) {
      const int64_t n = std::min<int64_t>(kRows, tokens - first);
      const auto sequence = std::upper_bound(cu.begin(), cu.end(), first) - cu.begin() - 1;
      IndexScores s;
      s.rows = {.cu_seqlens = device_cu.data()};
      s.rows.sequences = static_cast<int64_t>(lengths.size());
      s.rows.first_row = first, s.rows.rows = n;
      s.rows.max_query_len = n;
      s.rows.max_key_len = first + n - cu[static_cast<size_t>(sequence)];
      s.q = q.data() + first * kHeads * kDim, s.keys = keys.data();
      s.weights = weights.data() + first * kHeads, s.scores = scores.data();
      s.q_stride = kHeads * kDim, s.key_stride = kDim, s.score_stride = tokens;
      s.heads = kHeads, s.head_dim = kDim, s.key_rows = tokens;
      s.top_k = kTopK, s.scale = 1.0f / std::sqrt(float{kDim});
      SLX_CUDA(index_scores(s, nullptr));
      const KeySelection k{.rows = s.rows,
                           .scores = scores.data(),
                           .selected = selected.data() + first * kTopK,
                           .score_stride = tokens,
                           .k = kTopK};
      if (selects) SLX_CUDA(select_keys(k, nullptr));
    }
  };
  const double score_us = median_us(repeats, [&] { run(false); });
  const double both_us = median_us(repeats, [&] { run(true); });
  const double rate = 2.0 * pairs * kHeads * kDim / score_us * 1e-6;
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
  time_decode(1, 32768, 32768, 64, copy, repeats);
  time_decode(8, 131072, 131072, 64, copy, repeats);
  time_decode(64, 4096, 131072, 64, copy, repeats);
  time_training({32768}, std::min(repeats, 5));
  time_training(std::vector<int>(4, 8192), std::min(repeats, 5));
}
