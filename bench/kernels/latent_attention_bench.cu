// Times latent attention in the sizes of GLM-4.7-Flash (20 heads) and DeepSeek (128): the latent
// forward of training, the backward by head, the products of heads, and decodes over pages; and
// those of GLM-5 (64 heads), whose queries see 2048 keys each.
//   latent_attention_bench [repeats]
// FLOPs of the forward are those of the latent form, of the backward 2.5 times the expanded
// forward's, both halved by causality, whatever the kernels recompute. A decode's bytes are the
// latent rows that it reads, beside a copy's read and write. Where queries see chosen keys, pairs
// are those of a query and a key that it sees.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/flushed_timing.h"
#include "slimexx/kernels/attention_backward.h"
#include "slimexx/kernels/head_gemm.h"
#include "slimexx/kernels/latent_attention.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16 = __nv_bfloat16;
constexpr int kValues = 512, kRotary = 64, kWidth = kValues + kRotary;

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

struct Packed {
  std::vector<int32_t> cu{0};
  double pairs = 0;  // of a query and a key, of all sequences
  int longest = 0;
  explicit Packed(const std::vector<int>& lengths, int most_keys = INT32_MAX) {
    for (const int n : lengths) {
      const double k = std::min(n, most_keys);
      cu.push_back(cu.back() + n);
      pairs += n * k - 0.5 * k * k;
      longest = std::max(longest, n);
    }
  }
};

// For the queries at `positions`, up to `k` keys each, drawn from equal parts of all up to their
// own.
DeviceArray<int32_t> draw_lists(const std::vector<int>& positions, int k) {
  std::vector<int32_t> lists(positions.size() * static_cast<size_t>(k), -1);
  std::mt19937_64 random(11);
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t keys = positions[i] + 1, count = std::min<int64_t>(k, keys);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t begin = keys * j / count, end = keys * (j + 1) / count;
      lists[i * static_cast<size_t>(k) + static_cast<size_t>(j)] =
          static_cast<int32_t>(begin + static_cast<int64_t>(random() % uint64_t(end - begin)));
    }
  }
  return upload(lists);
}
std::vector<int> positions_of(const std::vector<int>& lengths) {
  std::vector<int> positions;
  for (const int n : lengths)
    for (int i = 0; i < n; ++i) positions.push_back(i);
  return positions;
}
std::string name_lists(int k) {
  return k > 0 ? ", " + std::to_string(k) + " keys each" : std::string();
}

// `list`: keys that a query sees; 0: all.
void time_forward(int heads, const std::vector<int>& lengths, int repeats, int list = 0) {
  const Packed packed(lengths, list > 0 ? list : INT32_MAX);
  const DeviceArray<int32_t> lists = draw_lists(positions_of(lengths), std::max(list, 1));
  const int64_t tokens = packed.cu.back();
  DeviceArray<Bf16> q(tokens * heads * kWidth), keys(tokens * kWidth),
      out(tokens * heads * kValues);
  DeviceArray<float> lse(tokens * heads);
  const auto cu = upload(packed.cu);
  fill(q, 1);
  fill(keys, 2);
  LatentAttentionForward f;
  f.q = q.data(), f.keys = keys.data(), f.out = out.data(), f.lse = lse.data();
  f.key_stride = kWidth, f.out_stride = int64_t{heads} * kValues;
  f.cu_seqlens = cu.data();
  f.tokens = tokens, f.query_heads = heads, f.value_dim = kValues, f.rotary_dim = kRotary;
  f.runs.whole = {static_cast<int64_t>(lengths.size()), packed.longest, packed.longest};
  f.selected = list > 0 ? lists.data() : nullptr, f.list_width = list;
  f.scale = 1.0f / 16;
  f.workspace_bytes = latent_attention_forward_workspace(f);
  DeviceArray<uint8_t> workspace(static_cast<int64_t>(f.workspace_bytes));
  f.workspace = workspace.data();
  const double us = median_us(repeats, [&] { SLX_CUDA(latent_attention_forward(f, nullptr)); });
  const double rate = 2.0 * heads * packed.pairs * (kWidth + kValues) / us * 1e-6;
  std::printf("latent forward, %d heads, %zu x %d%s: %.1f us, %.0f TFLOP/s\n", heads,
              lengths.size(), lengths[0], name_lists(list).c_str(), us, rate);
}

void time_backward(int heads, int dim, int values, const std::vector<int>& lengths, int repeats,
                   int list = 0) {
  const Packed packed(lengths, list > 0 ? list : INT32_MAX);
  const DeviceArray<int32_t> lists = draw_lists(positions_of(lengths), std::max(list, 1));
  const int64_t tokens = packed.cu.back(), row = int64_t{heads} * dim,
                value_row = int64_t{heads} * values;
  DeviceArray<Bf16> q(tokens * row), k(tokens * row), v(tokens * value_row),
      out(tokens * value_row), dout(tokens * value_row), dq(tokens * row), dk(tokens * row),
      dv(tokens * value_row);
  DeviceArray<float> lse(tokens * heads);
  const auto cu = upload(packed.cu);
  for (const auto* x : {&q, &k, &v, &out, &dout}) fill(*x, 3);
  SLX_CUDA(cudaMemset(lse.data(), 0, static_cast<size_t>(lse.count()) * 4));
  AttentionBackward b;
  b.q = q.data(), b.k = k.data(), b.v = v.data(), b.out = out.data(), b.dout = dout.data();
  b.lse = lse.data();
  b.dq = dq.data(), b.dk = dk.data(), b.dv = dv.data();
  b.q_stride = b.k_stride = b.dq_stride = b.dk_stride = row;
  b.v_stride = b.dv_stride = b.out_stride = b.dout_stride = value_row;
  b.cu_seqlens = cu.data();
  b.tokens = tokens, b.sequences = static_cast<int64_t>(lengths.size());
  b.query_heads = b.kv_heads = heads, b.head_dim = dim, b.value_dim = values;
  b.max_len = packed.longest, b.scale = 1e-3f;
  b.selected = list > 0 ? lists.data() : nullptr, b.list_width = list;
  b.workspace_bytes = attention_backward_workspace(b);
  DeviceArray<uint8_t> workspace(static_cast<int64_t>(b.workspace_bytes));
  b.workspace = workspace.data();
  const double us = median_us(repeats, [&] { SLX_CUDA(attention_backward(b, nullptr)); });
  const double rate = 2.5 * 2.0 * heads * packed.pairs * (dim + values) / us * 1e-6;
  std::printf("backward by head, %d heads of %d and %d, %zu x %d%s: %.1f us, %.0f TFLOP/s\n", heads,
              dim, values, lengths.size(), lengths[0], name_lists(list).c_str(), us, rate);
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

void time_decode(int heads, int sequences, int keys_each, double copy, int repeats, int list = 0) {
  constexpr int kPage = 64;
  const int width = (keys_each + kPage - 1) / kPage, pages = width * sequences;
  std::vector<int32_t> cu(static_cast<size_t>(sequences) + 1), table(static_cast<size_t>(pages)),
      contexts(static_cast<size_t>(sequences), keys_each - 1);
  std::iota(cu.begin(), cu.end(), 0);
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(7));
  const auto device_cu = upload(cu), device_contexts = upload(contexts),
             device_table = upload(table);
  DeviceArray<Bf16> q(int64_t{sequences} * heads * kWidth), rows(int64_t{pages} * kPage * kWidth),
      out(int64_t{sequences} * heads * kValues);
  fill(q, 1);
  fill(rows, 2);
  LatentAttentionForward f;
  f.q = q.data(), f.keys = rows.data(), f.out = out.data();
  f.key_stride = kWidth, f.out_stride = int64_t{heads} * kValues;
  f.cu_seqlens = device_cu.data(), f.context_lens = device_contexts.data();
  f.page_table = device_table.data(), f.page_table_stride = width;
  f.pages = pages, f.page_tokens = kPage;
  f.tokens = sequences, f.query_heads = heads, f.value_dim = kValues, f.rotary_dim = kRotary;
  f.runs =
      choose_attention_runs({sequences, 1, keys_each}, sequences, latent_group(heads), INT32_MAX);
  f.scale = 1.0f / 16;
  const DeviceArray<int32_t> lists = draw_lists(
      std::vector<int>(static_cast<size_t>(sequences), keys_each - 1), std::max(list, 1));
  f.selected = list > 0 ? lists.data() : nullptr, f.list_width = list;
  f.workspace_bytes = latent_attention_forward_workspace(f);
  DeviceArray<uint8_t> workspace(static_cast<int64_t>(f.workspace_bytes));
  f.workspace = workspace.data();
  const double us = median_us(repeats, [&] { SLX_CUDA(latent_attention_forward(f, nullptr)); });
  const int read = list > 0 ? std::min(list, keys_each) : keys_each;
  const double rate = 2.0 * sequences * double(read) * kWidth / us * 1e-6;
  std::printf("latent decode, %d heads, %d x %d keys%s: %.1f us, %.2f TB/s, %.0f %% of copy\n",
              heads, sequences, keys_each, name_lists(list).c_str(), us, rate, 100 * rate / copy);
}

void time_products(int heads, int64_t tokens, int repeats) {
  constexpr int kNope = 192, kHeadValues = 256;
  DeviceArray<Bf16> q(tokens * heads * kNope), latent(tokens * heads * kWidth),
      out(tokens * heads * kHeadValues), w(int64_t{heads} * 512 * 256);
  fill(q, 1);
  fill(latent, 2);
  fill(w, 3);
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
  time_forward(20, std::vector<int>(4, 2048), repeats);
  time_forward(20, std::vector<int>(8, 1024), repeats);
  time_forward(128, {4096}, repeats);
  time_backward(20, 256, 256, {8192}, repeats);
  time_backward(20, 256, 256, std::vector<int>(4, 2048), repeats);
  time_backward(16, 192, 128, {8192}, repeats);
  for (const int heads : {20, 128}) {
    time_decode(heads, 64, 8192, copy, repeats);
    time_decode(heads, 256, 2048, copy, repeats);
  }
  for (const int keys : {400, 1536}) time_decode(20, 1, keys, copy, repeats);
  time_forward(64, {8192}, repeats, 2048);
  time_forward(64, std::vector<int>(4, 2048), repeats, 2048);
  time_forward(16, {8192}, repeats, 2048);
  time_backward(64, 256, 256, {8192}, repeats, 2048);
  time_backward(64, 256, 256, {8192}, repeats);
  for (const int sequences : {1, 32, 128}) time_decode(64, sequences, 32768, copy, repeats, 2048);
  for (const int64_t tokens : {1, 256, 8192}) time_products(20, tokens, repeats);
}
