// Times every kernel of kernels/rows.h on training shapes (8192 rows) against the copy bandwidth of
// the same run. Kernels of a decode step also run on few rows, which are in L2 as in a real step.
// bench/peers/rows.py reads the output and compares with torch.
#include "slimexx/kernels/rows.h"

#include <cmath>
#include <random>
#include <string>

#include "bench/kernels/rows_timing.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kRotatedBytes = int64_t{300} << 20;  // several times the L2
constexpr int64_t kDecodeBytes = int64_t{40} << 20;
constexpr float kEps = 1e-6f;
double copy_bandwidth = 0;
std::string wanted;  // run only kernels whose name contains this

// Several copies of `count` bf16 elements of normal noise.
class Noise {
 public:
  Noise(int64_t count, int copies) : stride_((count + 7) / 8 * 8), all_(stride_ * copies) {
    fill_normal<<<2048, 256>>>(all_.data(), all_.count(), ++seed_, 1.0f);
  }
  __nv_bfloat16* operator[](int copy) const { return all_.data() + copy * stride_; }

 private:
  static inline uint64_t seed_ = 0;
  int64_t stride_;
  DeviceArray<__nv_bfloat16> all_;
};

int count_copies(int64_t bytes) {
  if (bytes < kDecodeBytes) return 2;
  return static_cast<int>(std::clamp<int64_t>(kRotatedBytes / bytes + 1, 2, 64));
}

std::string shape_of(int64_t rows, int64_t width) {
  return std::to_string(rows) + "x" + std::to_string(width);
}

void measure(const char* name, const std::string& shape, int copies, double bytes,
             const Launch& launch) {
  if (std::string(name).find(wanted) == std::string::npos) return;
  const bool is_short = bytes < double(kDecodeBytes);
  const double us = time_launches(is_short ? 200 : std::max(copies, 8), copies, 1e4, launch);
  print_line(name, shape.c_str(), us, bytes, copy_bandwidth);
}

void bench_norm(int64_t rows, int64_t width, bool with_backward) {
  const int64_t n = rows * width;
  const int copies = count_copies(n * 4);
  const std::string shape = shape_of(rows, width);
  const Noise x(n, copies), y(n, copies), branch(n, copies), w(width, 1), norm(width, 1);
  measure("rms_norm", shape, copies, double(n) * 4, [&](int c, cudaStream_t s) {
    SLX_CUDA(rms_norm_forward(y[c], width, x[c], width, w[0], rows, width, kEps, s));
  });
  measure("add_rms_norm", shape, copies, double(n) * 8, [&](int c, cudaStream_t s) {
    SLX_CUDA(
        add_rms_norm_forward(y[c], x[c], x[c], branch[c], nullptr, w[0], rows, width, kEps, s));
  });
  measure("add_normed_rms_norm", shape, copies, double(n) * 8, [&](int c, cudaStream_t s) {
    SLX_CUDA(
        add_rms_norm_forward(y[c], x[c], x[c], branch[c], norm[0], w[0], rows, width, kEps, s));
  });
  if (!with_backward) return;
  DeviceArray<float> dw(width);
  dw.set_bytes(0);
  const DeviceArray<char> workspace(static_cast<int64_t>(rms_norm_backward_workspace(rows, width)));
  for (const bool accumulate : {false, true}) {
    measure(accumulate ? "rms_norm_backward_add" : "rms_norm_backward", shape, copies,
            double(n) * (accumulate ? 8 : 6), [&](int c, cudaStream_t s) {
              SLX_CUDA(rms_norm_backward(y[c], width, dw.data(), branch[c], width, x[c], width,
                                         w[0], rows, width, kEps, accumulate, workspace.data(), s));
            });
  }
}

struct HeadsOnDevice {
  HeadsOnDevice(const QkvShape& shape, int64_t rotary_dim, bool interleaved)
      : cos(kPositions * rotary_dim / 2),
        sin(cos.count()),
        positions(shape.tokens),
        slots(shape.tokens) {
    cos.set_bytes(0x3e);
    sin.set_bytes(0x3d);
    std::vector<int32_t> p, s;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      p.push_back(static_cast<int32_t>(t % kPositions));
      s.push_back(static_cast<int32_t>(t * 7 % shape.tokens));
    }
    const size_t bytes = p.size() * sizeof(int32_t);
    SLX_CUDA(cudaMemcpy(positions.data(), p.data(), bytes, cudaMemcpyHostToDevice));
    SLX_CUDA(cudaMemcpy(slots.data(), s.data(), bytes, cudaMemcpyHostToDevice));
    tables = {cos.data(), sin.data(), positions.data(), rotary_dim, interleaved};
  }
  static constexpr int64_t kPositions = 4096;
  DeviceArray<float> cos, sin;
  DeviceArray<int32_t> positions, slots;
  RotaryTables tables;
};

// Qwen3's heads (norms, rotation of halves), or GLM-4's (no norms, rotation of pairs in half of the
// head).
void bench_heads(const QkvShape& shape, bool is_qwen, bool is_decode) {
  const int64_t heads = shape.query_heads + 2 * shape.kv_heads, n = shape.tokens * heads * 128;
  const int64_t kv = shape.tokens * shape.kv_heads * 128, turned = n - kv;
  const int copies = count_copies(n * 4);
  const HeadsOnDevice d(shape, is_qwen ? 128 : 64, !is_qwen);
  const Noise in(n, copies), out(n, copies), k(kv, copies), v(kv, copies), norm(128, 2);
  const auto* q_norm = is_qwen ? norm[0] : nullptr;
  const auto* k_norm = is_qwen ? norm[1] : nullptr;
  const std::string name = is_qwen ? "qk_norm_rotary" : "rotary_pairs";
  const std::string text = std::to_string(shape.tokens) + "x(" + std::to_string(shape.query_heads) +
                           "+2*" + std::to_string(shape.kv_heads) + ")x128";
  measure((name + "_pages").c_str(), text, copies, double(n) * 4, [&](int c, cudaStream_t s) {
    SLX_CUDA(qk_norm_rotary_forward(out[c], heads, in[c], q_norm, k_norm, kEps, d.tables,
                                    {k[c], v[c], d.slots.data()}, shape, s));
  });
  const int64_t places = (shape.tokens + 15) / 16 * 16 * shape.kv_heads;
  const Noise k_scales(places, copies), v_scales(places, copies);
  const double read = double(n) * 2, queries = double(shape.tokens * shape.query_heads) * 128;
  measure((name + "_f8_pages").c_str(), text, copies,
          read + queries * 2 + double(kv) * 2 + 4 * places, [&](int c, cudaStream_t s) {
            const KvPages pages{k[c], v[c], d.slots.data(), true, k_scales[c], v_scales[c], 16};
            SLX_CUDA(qk_norm_rotary_forward(out[c], heads, in[c], q_norm, k_norm, kEps, d.tables,
                                            pages, shape, s));
          });
  if (is_decode) return;
  measure(name.c_str(), text, copies, double(n) * 4, [&](int c, cudaStream_t s) {
    SLX_CUDA(
        qk_norm_rotary_forward(out[c], heads, in[c], q_norm, k_norm, kEps, d.tables, {}, shape, s));
  });
  measure((name + "_f8").c_str(), text, copies, double(n) * 4, [&](int c, cudaStream_t s) {
    KvPages rounded;
    rounded.round_f8 = true;
    SLX_CUDA(qk_norm_rotary_forward(out[c], heads, in[c], q_norm, k_norm, kEps, d.tables, rounded,
                                    shape, s));
  });
  measure((name + "_alone").c_str(), text, copies, double(turned) * 4, [&](int c, cudaStream_t s) {
    SLX_CUDA(qk_norm_rotary_forward(out[c], heads - shape.kv_heads, in[c], q_norm, k_norm, kEps,
                                    d.tables, {}, shape, s));
  });
  const DeviceArray<float> dw(256);
  const DeviceArray<char> workspace(static_cast<int64_t>(qk_norm_rotary_backward_workspace(shape)));
  measure((name + "_backward").c_str(), text, copies, double(turned) * (is_qwen ? 6 : 4),
          [&](int c, cudaStream_t s) {
            SLX_CUDA(qk_norm_rotary_backward(out[c], dw.data(), dw.data() + 128, in[c], q_norm,
                                             k_norm, kEps, d.tables, shape, workspace.data(), s));
          });
}

void bench_swiglu(int64_t rows, int64_t width, bool with_backward) {
  const int64_t n = rows * width;
  const int copies = count_copies(n * 6);
  const Noise gate_up(2 * n, copies), h(n, copies), d(with_backward ? 2 * n : 8, copies);
  measure("swiglu", shape_of(rows, width), copies, double(n) * 6, [&](int c, cudaStream_t s) {
    SLX_CUDA(swiglu_forward(h[c], gate_up[c], rows, width, s));
  });
  if (!with_backward) return;
  measure("swiglu_backward", shape_of(rows, width), copies, double(n) * 10,
          [&](int c, cudaStream_t s) {
            SLX_CUDA(swiglu_backward(d[c], nullptr, h[c], gate_up[c], rows, width, s));
          });
  measure("swiglu_backward_and_h", shape_of(rows, width), copies, double(n) * 12,
          [&](int c, cudaStream_t s) {
            SLX_CUDA(swiglu_backward(d[c], h[c], h[c], gate_up[c], rows, width, s));
          });
}

// Token ids with the frequencies of text, where the k-th most frequent id is about 1 / k as
// frequent as the first. `all_alike`: one id for all tokens.
std::vector<int32_t> draw_tokens(int64_t count, int64_t vocabulary, bool all_alike) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> uniform(0, std::log(double(vocabulary)));
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const auto rank = static_cast<int64_t>(std::exp(uniform(engine)));
    tokens.push_back(all_alike ? 17 : static_cast<int32_t>(rank * 7919 % vocabulary));
  }
  return tokens;
}

void bench_embedding(int64_t rows, int64_t width, bool with_backward) {
  constexpr int64_t kVocabulary = 151936;
  const Noise table(kVocabulary * width, 1), y(rows * width, 2);
  const DeviceArray<int32_t> index(rows);
  DeviceArray<float> dtable(with_backward ? kVocabulary * width : 8);
  dtable.set_bytes(0);
  const DeviceArray<char> workspace(
      static_cast<int64_t>(embedding_backward_workspace(rows, kVocabulary)));
  for (const bool all_alike : {false, true}) {
    std::vector<int32_t> tokens = draw_tokens(rows, kVocabulary, all_alike);
    SLX_CUDA(cudaMemcpy(index.data(), tokens.data(), tokens.size() * 4, cudaMemcpyHostToDevice));
    std::sort(tokens.begin(), tokens.end());
    const auto distinct = std::unique(tokens.begin(), tokens.end()) - tokens.begin();
    if (!all_alike) {
      measure("gather_rows", shape_of(rows, width), 2, double(rows + distinct) * double(width) * 2,
              [&](int c, cudaStream_t s) {
                SLX_CUDA(gather_rows(y[c], width, table[0], width, index.data(), rows, width, s));
              });
    }
    if (!with_backward) return;
    measure(all_alike ? "embedding_backward_same" : "embedding_backward", shape_of(rows, width), 2,
            double(width) * (double(rows) * 2 + double(distinct) * 8), [&](int c, cudaStream_t s) {
              SLX_CUDA(embedding_backward(dtable.data(), y[c], index.data(), rows, width,
                                          kVocabulary, workspace.data(), s));
            });
  }
}

void bench_scatter(int64_t count, int64_t width) {
  const int copies = count_copies(count * width * 4);
  const Noise x(2 * count * width, copies), y(count * width, copies);
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(2 * i + i % 2));
  const DeviceArray<int32_t> index(count);
  SLX_CUDA(cudaMemcpy(index.data(), rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  measure("scatter_add_rows", shape_of(count, width), copies, double(count) * double(width) * 6,
          [&](int c, cudaStream_t s) {
            SLX_CUDA(scatter_add_rows(x[c], width, y[c], width, index.data(), count, width, s));
          });
}

void bench_elementwise(int64_t n) {
  const int copies = 3;
  const Noise a(2 * n, copies), b(2 * n, copies);
  const std::string shape = shape_of(kRows, n / kRows);
  measure("add bf16", shape, copies, double(n) * 6, [&](int c, cudaStream_t s) {
    SLX_CUDA(add(b[c] + n, a[c], b[c], Element::kBF16, n, s));
  });
  measure("add_scaled f32", shape, copies, double(n) * 12, [&](int c, cudaStream_t s) {
    SLX_CUDA(add_scaled(a[c], b[c], 1e-3f, Element::kF32, n, s));
  });
  measure("scale f32", shape, copies, double(n) * 8,
          [&](int c, cudaStream_t s) { SLX_CUDA(scale(a[c], 1.0001f, Element::kF32, n, s)); });
  measure("convert f32 to bf16", shape, copies, double(n) * 6, [&](int c, cudaStream_t s) {
    SLX_CUDA(convert(b[c], Element::kBF16, a[c], Element::kF32, n, s));
  });
}

void bench_column_sums(int64_t rows, int64_t n) {
  const int copies = count_copies(rows * n * 2);
  const Noise dy(rows * n, copies);
  const DeviceArray<float> sums(n);
  const DeviceArray<char> workspace(static_cast<int64_t>(column_sums_workspace(rows, n)));
  measure("column_sums", shape_of(rows, n), copies, double(rows) * double(n) * 2,
          [&](int c, cudaStream_t s) {
            SLX_CUDA(column_sums(sums.data(), dy[c], n, rows, n, workspace.data(), s));
          });
}

void run() {
  copy_bandwidth = measure_copy();
  for (const int64_t width : {2560, 4096}) bench_norm(kRows, width, true);
  bench_heads({kRows, 32, 8, 128}, true, false);
  bench_heads({kRows, 32, 2, 128}, false, false);
  for (const int64_t width : {9728, 13696}) bench_swiglu(kRows, width, true);
  bench_embedding(kRows, 2560, true);
  bench_scatter(kRows / 2, 4096);
  bench_elementwise(kRows * 4096);
  for (const int64_t n : {4608, 6144}) bench_column_sums(kRows, n);
  for (const int64_t rows : {1, 32, 256}) {
    bench_norm(rows, 4096, false);
    bench_heads({rows, 32, 8, 128}, true, true);
    bench_swiglu(rows, 12288, false);
    bench_embedding(rows, 4096, false);
  }
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  if (argc > 1) slimexx::kernels::testing::wanted = argv[1];
  slimexx::kernels::testing::run();
}
