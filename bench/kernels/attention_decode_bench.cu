// Times decode attention: one query per sequence over paged keys and values, as in the engine. Some
// batches also have a prefill chunk, which is timed alone too. A graph has several layers, whose
// keys and values are many times the size of L2, and is replayed long enough to reach the chip's
// power limit. The last lines compare bf16 and FP8 pages, in turns.
//   attention_decode_bench [chained]
// `chained`: before each launch a small kernel rewrites the queries and lets attention start early,
// like the head norms of a model. The time includes both kernels.
#include <cuda_bf16.h>

#include <cmath>
#include <cstring>
#include <random>

#include "bench/kernels/rows_timing.h"
#include "kernels/common/cluster.cuh"
#include "slimexx/kernels/attention.h"
#include "slimexx/tensor/float8.h"
#include "tests/kernels/need_device.h"
#include "tests/kernels/normal_values.cuh"

namespace {

using namespace slimexx::kernels;
using namespace slimexx::kernels::testing;

constexpr int kHeadDim = 128;
constexpr int kQueryHeads = 32;
constexpr int kPage = 16;

__global__ void rewrite_queries(uint4* q, int count) {
  await_previous_grids();
  allow_next_grid();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  uint4 x = q[i];
  x.x ^= 0x00010001u;
  q[i] = x;
}

struct Shape {
  int sequences, shortest, longest, kv_heads;
  int chunk = 0;  // tokens of a prefill chunk after the decodes, without context; at most `longest`
};

__global__ void fill_bytes(uint8_t* out, const __nv_bfloat16* from, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    out[i] = slimexx::tensor::f32_to_f8_e4m3(__bfloat162float(from[i]) * 128);
  }
}

// FP8 pages, of the values of bf16 pages.
struct BytePool {
  DeviceArray<uint8_t> k, v;
  DeviceArray<__nv_bfloat16> scales;
  BytePool(const DeviceArray<__nv_bfloat16>& keys, const DeviceArray<__nv_bfloat16>& values)
      : k(keys.count()), v(values.count()), scales(keys.count() / kHeadDim) {
    fill_bytes<<<2048, 256>>>(k.data(), keys.data(), keys.count());
    fill_bytes<<<2048, 256>>>(v.data(), values.data(), values.count());
    const uint16_t inverse = 0x3c00;  // 1 / 128
    const std::vector<uint16_t> host(static_cast<size_t>(scales.count()), inverse);
    SLX_CUDA(cudaMemcpy(scales.data(), host.data(), host.size() * 2, cudaMemcpyHostToDevice));
    SLX_CUDA(cudaDeviceSynchronize());
  }
};

struct Pool {
  DeviceArray<__nv_bfloat16> k, v;
  explicit Pool(int64_t elements) : k(elements), v(elements) {
    fill_normal<<<2048, 256>>>(k.data(), elements, 1, 1.0f);
    fill_normal<<<2048, 256>>>(v.data(), elements, 2, 1.0f);
    SLX_CUDA(cudaDeviceSynchronize());
  }
};

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
  DeviceArray<T> array(static_cast<int64_t>(host.size()));
  SLX_CUDA(cudaMemcpy(array.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return array;
}

// `bytes`: null for bf16 pages.
void time_shape(const Shape& shape, const Pool& pool, const BytePool* bytes, bool chained,
                double copy) {
  std::mt19937_64 random(7);
  const int sequences = shape.sequences + (shape.chunk > 0);
  const int width = (shape.longest + kPage - 1) / kPage, pages = width * sequences;
  std::vector<int32_t> cu, contexts, table(static_cast<size_t>(pages));
  double keys = 0;
  for (int i = 0; i <= shape.sequences; ++i) cu.push_back(i);
  for (int i = 0; i < shape.sequences; ++i) {
    const auto spread = static_cast<uint64_t>(shape.longest - shape.shortest + 1);
    contexts.push_back(shape.shortest + static_cast<int>(random() % spread) - 1);
    keys += contexts.back() + 1;
  }
  if (shape.chunk > 0) {
    cu.push_back(cu.back() + shape.chunk);
    contexts.push_back(0);
    keys += shape.chunk;
  }
  for (int i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = i;
  std::shuffle(table.begin(), table.end(), random);
  const auto device_cu = upload(cu), device_contexts = upload(contexts),
             device_table = upload(table);
  const int64_t width_of_q = int64_t{kQueryHeads} * kHeadDim;
  DeviceArray<__nv_bfloat16> q(cu.back() * width_of_q), out(q.count());
  fill_normal<<<256, 256>>>(q.data(), q.count(), 3, 1.0f);
  AttentionForward a;
  a.q = q.data(), a.out = out.data();
  a.q_stride = a.out_stride = width_of_q;
  a.k_stride = a.v_stride = int64_t{shape.kv_heads} * kHeadDim;
  a.cu_seqlens = device_cu.data(), a.context_lens = device_contexts.data();
  a.page_table = device_table.data(), a.page_table_stride = width;
  a.pages = pages, a.page_tokens = kPage;
  a.tokens = cu.back();
  a.query_heads = kQueryHeads, a.kv_heads = shape.kv_heads, a.head_dim = kHeadDim;
  const int group = kQueryHeads / shape.kv_heads;
  if (shape.chunk > 0) {
    a.runs = choose_attention_runs(cu, contexts, group, shape.sequences);
  } else {
    int64_t longest = 1024;
    while (longest < shape.longest) longest *= 2;  // rounded up as in recorded steps
    a.runs = choose_attention_runs({sequences, 1, longest}, a.tokens, group, a.tokens);
  }
  a.scale = 1.0f / std::sqrt(float(kHeadDim));
  a.workspace_bytes = attention_forward_workspace(a);
  const DeviceArray<uint8_t> workspace(static_cast<int64_t>(a.workspace_bytes));
  a.workspace = workspace.data();
  const int64_t layer = int64_t{pages} * kPage * a.k_stride;
  const int layers = static_cast<int>(std::min<int64_t>(pool.k.count() / layer, 16));
  const double us = time_launches(layers, layers, 7e4, [&](int copy_index, cudaStream_t stream) {
    if (chained) {
      cudaLaunchAttribute early{};
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
      cudaLaunchConfig_t config{};
      const int count = static_cast<int>(q.count() / 8);
      config.gridDim = dim3(static_cast<unsigned>((count + 127) / 128));
      config.blockDim = dim3(128);
      config.stream = stream;
      config.attrs = &early;
      config.numAttrs = 1;
      SLX_CUDA(
          cudaLaunchKernelEx(&config, rewrite_queries, reinterpret_cast<uint4*>(q.data()), count));
    }
    AttentionForward one = a;
    one.k = pool.k.data() + copy_index * layer;
    one.v = pool.v.data() + copy_index * layer;
    if (bytes != nullptr) {
      one.k = bytes->k.data() + copy_index * layer;
      one.v = bytes->v.data() + copy_index * layer;
      one.k_scales = one.v_scales = bytes->scales.data() + copy_index * layer / kHeadDim;
    }
    SLX_CUDA(attention_forward(one, stream));
  });
  char name[64];
  std::snprintf(name, sizeof name, "%d x %d-%d hk %d + %d%s", shape.sequences, shape.shortest,
                shape.longest, shape.kv_heads, shape.chunk, bytes != nullptr ? " FP8" : "");
  const double head_bytes = bytes != nullptr ? kHeadDim + 2 : 2 * kHeadDim;
  print_line(chained ? "attention_decode chained" : "attention_decode", name, us,
             2.0 * keys * shape.kv_heads * head_bytes, copy);
}

}  // namespace

int main(int argc, char** argv) {
  need_device();
  const bool chained = argc > 1 && std::strcmp(argv[1], "chained") == 0;
  const double copy = measure_copy();
  const Pool pool(int64_t{256} * 2048 * 8 * kHeadDim * 3);
  for (const Shape& shape :
       {Shape{256, 512, 512, 8}, Shape{256, 1088, 1088, 8}, Shape{256, 1536, 1536, 8},
        Shape{256, 2000, 2000, 8}, Shape{256, 1024, 2048, 8}, Shape{128, 1024, 2048, 8},
        Shape{256, 1024, 2048, 2}, Shape{64, 1024, 8192, 8}, Shape{64, 8192, 8192, 8},
        Shape{64, 8192, 8192, 2}, Shape{8, 4096, 4096, 8}, Shape{8, 2000, 2000, 8},
        Shape{2, 8192, 8192, 8}, Shape{1, 8192, 8192, 8}, Shape{1, 2048, 2048, 8},
        Shape{1, 640, 640, 8}, Shape{255, 1088, 1088, 8}, Shape{0, 1088, 1088, 8, 1024},
        Shape{255, 1088, 1088, 8, 1024}}) {
    time_shape(shape, pool, nullptr, chained, copy);
  }
  const BytePool bytes(pool.k, pool.v);
  for (const Shape& shape :
       {Shape{256, 1088, 1088, 8}, Shape{256, 1088, 1088, 8}, Shape{256, 1088, 1088, 8},
        Shape{256, 1024, 2048, 8}, Shape{256, 1088, 1088, 2}, Shape{64, 1024, 8192, 8},
        Shape{8, 4096, 4096, 8}, Shape{1, 8192, 8192, 8}, Shape{0, 1088, 1088, 8, 1024}}) {
    time_shape(shape, pool, nullptr, chained, copy);
    time_shape(shape, pool, &bytes, chained, copy);
  }
  return 0;
}
