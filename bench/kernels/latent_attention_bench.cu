// Times latent attention with the sizes of GLM-4.7-Flash (20 heads) and DeepSeek (128 heads): the
// latent forward of training, the backward per head, the head products, and decode over pages.
// GLM-5's sizes (64 heads) are timed with 2048 selected keys per query.
//   latent_attention_bench [repeats]
// FLOPs: the forward counts the latent form, the backward 2.5 times the expanded forward; both are
// halved for the causal mask and leave out what the kernels recompute. With selected keys only
// pairs of a query and a key that it sees count. Bytes of a decode are the latent rows that it
// reads; they are compared with the bytes that a copy reads and writes. FP8 keys are timed beside
// bf16 keys.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/attention_backward.h"
#include "slimexx/kernels/head_gemm.h"
#include "slimexx/kernels/latent_attention.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/fill.cuh"
#include "tests/kernels/latent_attention/latent_case.cuh"
#include "tests/kernels/latent_attention/wide_case.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int kValues = 512, kRotary = 64, kWidth = kValues + kRotary;

// Number of pairs of a query and a key that it sees, over all sequences. `list`: keys per query; 0:
// all.
double count_pairs(const std::vector<int32_t>& lengths, int64_t list) {
  double pairs = 0;
  for (const int32_t n : lengths) {
    const double k = list > 0 ? std::min<int64_t>(n, list) : n;
    pairs += n * k - 0.5 * k * k;
  }
  return pairs;
}
std::string name_lists(int k) {
  return k > 0 ? ", " + std::to_string(k) + " keys each" : std::string();
}

void time_forward(int heads, const std::vector<int32_t>& lengths, int repeats, int list = 0) {
  const LatentOperands operands({.lengths = lengths, .heads = heads, .list = list});
  const LatentBatch batch(operands, operands.sequences.whole(), {});
  const double us =
      median_us(repeats, [&] { SLX_CUDA(latent_attention_forward(batch.problem, nullptr)); });
  const double rate = 2.0 * heads * count_pairs(lengths, list) * (kWidth + kValues) / us * 1e-6;
  std::printf("latent forward, %d heads, %zu x %d%s: %.1f us, %.0f TFLOP/s\n", heads,
              lengths.size(), lengths[0], name_lists(list).c_str(), us, rate);
}

void time_backward(int heads, int dim, int values, const std::vector<int32_t>& lengths, int repeats,
                   int list = 0) {
  const WideOperands operands(
      {.lengths = lengths, .heads = heads, .dim = dim, .values = values, .list = list});
  const double us =
      median_us(repeats, [&] { SLX_CUDA(attention_backward(operands.problem, nullptr)); });
  const double rate = 2.5 * 2.0 * heads * count_pairs(lengths, list) * (dim + values) / us * 1e-6;
  std::printf("backward by head, %d heads of %d and %d, %zu x %d%s: %.1f us, %.0f TFLOP/s\n", heads,
              dim, values, lengths.size(), lengths[0], name_lists(list).c_str(), us, rate);
}

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

void time_decode(int heads, int sequences, int keys_each, double copy, int repeats, int list = 0) {
  const LatentOperands operands({.lengths = std::vector<int32_t>(sequences, keys_each),
                                 .heads = heads,
                                 .list = list,
                                 .last = 1});
  const LatentBatch batch(operands, operands.sequences.whole(),
                          {.page_tokens = 64, .runs = LatentRuns::kAuto, .has_lse = false});
  const double us =
      median_us(repeats, [&] { SLX_CUDA(latent_attention_forward(batch.problem, nullptr)); });
  const int read = list > 0 ? std::min(list, keys_each) : keys_each;
  const double rate = 2.0 * sequences * double(read) * kWidth / us * 1e-6;
  std::printf("latent decode, %d heads, %d x %d keys%s: %.1f us, %.2f TB/s, %.0f %% of copy\n",
              heads, sequences, keys_each, name_lists(list).c_str(), us, rate, 100 * rate / copy);
}

// Decode with bf16 and with FP8 keys, in turns: the smaller of two medians each.
void time_f8_decode(int heads, int sequences, int keys_each, double copy, int repeats,
                    int list = 0) {
  const LatentOperands operands({.lengths = std::vector<int32_t>(sequences, keys_each),
                                 .heads = heads,
                                 .list = list,
                                 .last = 1,
                                 .f8 = true});
  const auto batch = [&](bool bf16) {
    return LatentBatch(
        operands, operands.sequences.whole(),
        {.page_tokens = 64, .runs = LatentRuns::kAuto, .has_lse = false, .bf16 = bf16});
  };
  const LatentBatch wide = batch(true), narrow = batch(false);
  double us[2] = {1e30, 1e30};
  for (int turn = 0; turn < 2; ++turn)
    for (const LatentBatch* own : {&wide, &narrow}) {
      double& best = us[own == &narrow];
      best = std::min(best, median_us(repeats, [&] {
                        SLX_CUDA(latent_attention_forward(own->problem, nullptr));
                      }));
    }
  const int read = list > 0 ? std::min(list, keys_each) : keys_each;
  const double rows = double(sequences) * read;
  const double rates[2] = {
      2.0 * rows * kWidth / us[0] * 1e-6,
      rows * double(tensor::latent_f8_row_bytes(kValues, kRotary)) / us[1] * 1e-6};
  std::printf(
      "latent decode, %d heads, %d x %d keys%s: bf16 %.1f us, %.0f %% of copy; FP8 %.1f us, %.0f "
      "%% of copy; %.2f of the time\n",
      heads, sequences, keys_each, name_lists(list).c_str(), us[0], 100 * rates[0] / copy, us[1],
      100 * rates[1] / copy, us[1] / us[0]);
}

void time_products(int heads, int64_t tokens, int repeats) {
  constexpr int kNope = 192, kHeadValues = 256;
  const Bf16Array q(tokens * heads * kNope), latent(tokens * heads * kWidth),
      out(tokens * heads * kHeadValues), w(int64_t{heads} * 512 * 256);
  fill(q, tokens * heads * kNope, 1);
  fill(latent, tokens * heads * kWidth, 2);
  fill(w, int64_t{heads} * 512 * 256, 3);
  HeadGemmArgs in{.x = q.data(), .w = w.data(), .y = latent.data()};
  in.x_stride = int64_t{heads} * kNope, in.x_head_stride = kNope;
  in.y_stride = int64_t{heads} * kWidth, in.y_head_stride = kWidth;
  in.tokens = tokens, in.heads = heads, in.n = kNope, in.k = kValues;
  HeadGemmArgs leave{.x = latent.data(), .w = w.data(), .y = out.data()};
  leave.x_stride = int64_t{heads} * kValues, leave.x_head_stride = kValues;
  leave.y_stride = int64_t{heads} * kHeadValues, leave.y_head_stride = kHeadValues;
  leave.tokens = tokens, leave.heads = heads, leave.n = kHeadValues, leave.k = kValues;
  const auto check = [](const char* fault) {
    if (fault == nullptr) return;
    std::fprintf(stderr, "%s\n", fault);
    std::exit(2);
  };
  const double in_us = median_us(repeats, [&] { check(launch_head_input_grad(in, nullptr)); });
  const double out_us = median_us(repeats, [&] { check(launch_head_gemm(leave, nullptr)); });
  const double n = static_cast<double>(tokens) * heads;
  std::printf(
      "products of %d heads, %lld tokens: 192 to 512 %.1f us, %.0f TFLOP/s, %.2f TB/s; 512 to 256 "
      "%.1f us, %.0f TFLOP/s, %.2f TB/s\n",
      heads, static_cast<long long>(tokens), in_us, 2 * n * kNope * kValues / in_us * 1e-6,
      2 * n * (kNope + kValues) / in_us * 1e-6, out_us,
      2 * n * kHeadValues * kValues / out_us * 1e-6,
      2 * n * (kHeadValues + kValues) / out_us * 1e-6);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  const double copy = time_copy(repeats);
  time_forward(20, {8192}, repeats);
  time_forward(20, std::vector<int32_t>(4, 2048), repeats);
  time_forward(20, std::vector<int32_t>(8, 1024), repeats);
  time_forward(128, {4096}, repeats);
  time_backward(20, 256, 256, {8192}, repeats);
  time_backward(20, 256, 256, std::vector<int32_t>(4, 2048), repeats);
  time_backward(16, 192, 128, {8192}, repeats);
  for (const int heads : {20, 128}) {
    time_decode(heads, 64, 8192, copy, repeats);
    time_decode(heads, 256, 2048, copy, repeats);
  }
  for (const int heads : {20, 128}) time_f8_decode(heads, 256, 1088, copy, repeats);
  for (const int keys : {400, 1536}) {
    time_decode(20, 1, keys, copy, repeats);
    time_f8_decode(20, 1, keys, copy, repeats);
  }
  time_f8_decode(64, 32, 32768, copy, repeats, 2048);
  time_forward(64, {8192}, repeats, 2048);
  time_forward(64, std::vector<int32_t>(4, 2048), repeats, 2048);
  time_forward(16, {8192}, repeats, 2048);
  time_backward(64, 256, 256, {8192}, repeats, 2048);
  time_backward(64, 256, 256, {8192}, repeats);
  for (const int sequences : {1, 32, 128}) time_decode(64, sequences, 32768, copy, repeats, 2048);
  for (const int64_t tokens : {1, 256, 8192}) time_products(20, tokens, repeats);
}
