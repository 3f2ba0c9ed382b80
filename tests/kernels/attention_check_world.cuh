// Packed sequences for the check of attention: queries, keys and values on the device, also as the
// bytes of FP8 pages; and attention in fp64.
#pragma once
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/kernels/attention_f8_pages.cuh"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {

using Bf16 = __nv_bfloat16;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

template <class T>
struct Buffer {
  T* data = nullptr;
  size_t size = 0;
  explicit Buffer(size_t n) : size(n) { check(cudaMalloc(&data, n * sizeof(T)), "cudaMalloc"); }
  explicit Buffer(const std::vector<T>& host) : Buffer(host.size()) {
    check(cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
  std::vector<T> read() const {
    std::vector<T> host(size);
    check(cudaMemcpy(host.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }
  void poison() { check(cudaMemset(data, 0xff, size * sizeof(T)), "poison"); }
};

__device__ inline uint32_t hash(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return static_cast<uint32_t>(x >> 32);
}

// Normal numbers; every `spike_every`-th row of `row` elements is multiplied by 2^80.
static __global__ void fill_normal(Bf16* out, size_t n, uint64_t seed, size_t row,
                                   size_t spike_every) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    const float u = (hash(seed + 2 * i) + 0.5f) * 0x1p-32f;
    const float v = hash(seed + 2 * i + 1) * 0x1p-32f;
    float x = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
    if (spike_every != 0 && i / row % spike_every == spike_every - 1) x *= 0x1p80f;
    out[i] = __float2bfloat16(x);
  }
}

inline void fill(Buffer<Bf16>& buffer, uint64_t seed, size_t row = 1, size_t spike_every = 0) {
  fill_normal<<<1024, 256>>>(buffer.data, buffer.size, seed << 40, row, spike_every);
  check(cudaGetLastError(), "fill");
}

// One block per (token, head) of one packed sequence.
static __global__ void attend_naive(double* out, double* lse, const Bf16* q, const Bf16* k,
                                    const Bf16* v, int hq, int hk, int d, double scale) {
  extern __shared__ double scores[];
  __shared__ double total, highest;
  const int token = blockIdx.x, head = blockIdx.y, kv = head / (hq / hk);
  const Bf16* row = q + (size_t{blockIdx.x} * hq + head) * d;
  for (int j = threadIdx.x; j <= token; j += blockDim.x) {
    double s = 0;
    for (int i = 0; i < d; ++i) {
      s += double(__bfloat162float(row[i])) *
           double(__bfloat162float(k[(size_t(j) * hk + kv) * d + i]));
    }
    scores[j] = s * scale;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    highest = scores[0];
    for (int j = 1; j <= token; ++j) highest = fmax(highest, scores[j]);
    total = 0;
    for (int j = 0; j <= token; ++j) total += exp(scores[j] - highest);
    lse[size_t(token) * hq + head] = highest + log(total);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    double x = 0;
    for (int j = 0; j <= token; ++j) {
      x += exp(scores[j] - highest) * double(__bfloat162float(v[(size_t(j) * hk + kv) * d + i]));
    }
    out[(size_t(token) * hq + head) * d + i] = x / total;
  }
}

static __global__ void scatter_pages(Bf16* pages, const Bf16* rows, const int32_t* table,
                                     int row_elements, int page_tokens) {
  const int position = blockIdx.x;
  const size_t slot = size_t(table[position / page_tokens]) * page_tokens + position % page_tokens;
  for (int i = threadIdx.x; i < row_elements; i += blockDim.x) {
    pages[slot * row_elements + i] = rows[size_t(position) * row_elements + i];
  }
}

// Packed sequences with their queries, keys and values.
struct World {
  int hq, hk, d;
  std::vector<int> lengths, starts;
  int tokens;
  Buffer<Bf16> q, k, v;
  // If rounded: keys and values are those of FP8 pages with these bytes and scales, and runs with
  // pages use such pages.
  bool rounded = false;
  Buffer<uint8_t> k_bytes, v_bytes;
  Buffer<uint16_t> k_scales, v_scales;
  World(int query_heads, int kv_heads, int head_dim, std::vector<int> lens, uint64_t seed,
        size_t spike_every = 0, Values values = Values::kNormal)
      : hq(query_heads),
        hk(kv_heads),
        d(head_dim),
        lengths(std::move(lens)),
        tokens(sum(lengths)),
        q(size_t(tokens) * hq * d),
        k(size_t(tokens) * hk * d),
        v(size_t(tokens) * hk * d),
        k_bytes(k.size),
        v_bytes(v.size),
        k_scales(size_t(tokens) * hk),
        v_scales(k_scales.size) {
    int at = 0;
    for (int n : lengths) {
      starts.push_back(at);
      at += n;
    }
    if (values != Values::kNormal) {
      fill_wide(values, seed);
      return;
    }
    fill(q, seed);
    fill(k, seed + 1);
    fill(v, seed + 2, size_t(hk) * d, spike_every);
  }
  World& round(Magnitudes magnitudes) {
    rounded = true;
    const auto heads = static_cast<int64_t>(k_scales.size);
    const auto blocks = static_cast<unsigned>((heads + 127) / 128);
    round_through_f8<<<blocks, 128>>>(k.data, k_bytes.data, k_scales.data, heads, d,
                                      Magnitudes::kEqual);
    round_through_f8<<<blocks, 128>>>(v.data, v_bytes.data, v_scales.data, heads, d, magnitudes);
    check(cudaGetLastError(), "round_through_f8");
    return *this;
  }
  void fill_wide(Values values, uint64_t seed) {
    const auto fill = [&](Buffer<Bf16>& to, bool mirrored, uint64_t own_seed) {
      const auto count = static_cast<int64_t>(to.size);
      fill_values<<<1024, 256>>>(to.data, count, d, values, mirrored, own_seed, 1.0f);
      check(cudaGetLastError(), "fill");
    };
    fill(q, false, seed);
    fill(k, true, seed + 1);
    fill(v, false, seed + 2);
  }
  static int sum(const std::vector<int>& lens) {
    int total = 0;
    for (int n : lens) total += n;
    return total;
  }
  float scale() const { return 1.0f / std::sqrt(float(d)); }
};

}  // namespace slimexx::kernels::testing
