// A case of attention over packed sequences, shared by the check of gradients and the benchmarks:
// queries, keys and values in the layout of one fused projection, between guards; the forward and
// backward calls.
#pragma once
#include <cuda_bf16.h>
#include <cstdint>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "slimexx/kernels/attention.h"
#include "slimexx/kernels/attention_backward.h"
#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

using Bf16 = __nv_bfloat16;
using Bits = std::vector<uint16_t>;
constexpr uint16_t kGuard = 0x4a4a;
constexpr int64_t kGuardRows = 70;
inline int failures = 0;

inline float to_float(uint16_t x) {
  const uint32_t wide = uint32_t{x} << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}

inline uint16_t to_bits(float x) {
  const Bf16 rounded = __float2bfloat16(x);
  uint16_t bits;
  std::memcpy(&bits, &rounded, 2);
  return bits;
}

struct Shape {
  int hq, hk, d;
  int64_t q_row() const { return int64_t{hq} * d; }
  int64_t k_row() const { return int64_t{hk} * d; }
};

// The rows of one or three packed tensors, with guard rows before and after and a guard of `gap`
// values after each row.
struct Rows {
  int64_t tokens, stride;
  DeviceArray<Bf16> array;
  Rows(int64_t tokens_, int64_t row, int64_t gap)
      : tokens(tokens_), stride(row + gap), array((tokens + 2 * kGuardRows) * stride) {}
  Bf16* at(int64_t column) const { return array.data() + kGuardRows * stride + column; }
  void upload(const Bits& bits) const {
    SLX_CUDA(cudaMemcpy(array.data(), bits.data(), bits.size() * 2, cudaMemcpyHostToDevice));
  }
  Bits download() const {
    Bits bits(static_cast<size_t>(array.count()));
    SLX_CUDA(cudaMemcpy(bits.data(), array.data(), bits.size() * 2, cudaMemcpyDeviceToHost));
    return bits;
  }
};

// Packed sequences: q, k, v are columns of one array, dout is another array. `unused` tokens after
// the last sequence belong to no sequence.
struct World {
  Shape shape;
  std::vector<int> lengths, starts;
  int64_t tokens, gap = 8;
  Bits projected, dout;  // [tokens, (hq + 2 hk) d] and [tokens, hq d]
  World(Shape shape_, std::vector<int> lengths_, uint64_t seed, int64_t unused = 0)
      : shape(shape_), lengths(std::move(lengths_)), tokens(0) {
    for (int n : lengths) {
      starts.push_back(static_cast<int>(tokens));
      tokens += n;
    }
    tokens += unused;
    projected = draw(tokens * row(), seed);
    dout = draw(tokens * shape.q_row(), seed + 1);
  }
  int64_t row() const { return shape.q_row() + 2 * shape.k_row(); }
  static Bits draw(int64_t count, uint64_t seed) {
    Bits bits(static_cast<size_t>(count));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> table(1 << 16);  // drawing each value anew would take too long
    for (uint16_t& x : table) x = to_bits(normal(random));
    for (size_t i = 0; i < bits.size(); i += 4) {
      uint64_t r = random();
      for (size_t j = i; j < std::min(bits.size(), i + 4); ++j, r >>= 16)
        bits[j] = table[r & 0xffff];
    }
    return bits;
  }
  // A world with only the sequences `which`, in that order.
  World select(const std::vector<int>& which) const {
    World w = *this;
    w.lengths.clear(), w.starts.clear(), w.projected.clear(), w.dout.clear();
    w.tokens = 0;
    for (int i : which) {
      w.starts.push_back(static_cast<int>(w.tokens));
      w.lengths.push_back(lengths[i]);
      w.tokens += lengths[i];
      const auto append = [&](Bits& to, const Bits& from, int64_t width) {
        to.insert(to.end(), from.begin() + starts[i] * width,
                  from.begin() + (starts[i] + lengths[i]) * width);
      };
      append(w.projected, projected, row());
      append(w.dout, dout, shape.q_row());
    }
    return w;
  }
};

// The device copy of a world, after forward and backward.
struct Run {
  const World& world;
  Rows projected, out, dout, gradients;
  DeviceArray<float> lse;
  DeviceArray<int32_t> cu_seqlens;
  AttentionBackward problem;
  AttentionForward forward;
  DeviceArray<uint8_t> workspace, forward_workspace;

  explicit Run(const World& w)
      : world(w),
        projected(w.tokens, w.row(), w.gap),
        out(w.tokens, w.shape.q_row(), w.gap),
        dout(w.tokens, w.shape.q_row(), w.gap),
        gradients(w.tokens, w.row(), w.gap),
        lse(w.tokens * w.shape.hq),
        cu_seqlens(static_cast<int64_t>(w.lengths.size()) + 1),
        problem(describe()),
        forward(describe_forward()),
        workspace(static_cast<int64_t>(attention_backward_workspace(problem)) + 4096),
        forward_workspace(static_cast<int64_t>(attention_forward_workspace(forward)) + 16) {
    place(projected, w.projected, w.row());
    place(dout, w.dout, w.shape.q_row());
    out.array.set_bytes(0xff);
    lse.set_bytes(0xff);
    std::vector<int32_t> cu(w.starts.begin(), w.starts.end());
    cu.push_back(cu.back() + w.lengths.back());
    SLX_CUDA(cudaMemcpy(cu_seqlens.data(), cu.data(), cu.size() * 4, cudaMemcpyHostToDevice));
    run_forward();
    problem.workspace = workspace.data();
    problem.workspace_bytes = static_cast<size_t>(workspace.count()) - 4096;
  }

  AttentionBackward describe() const {
    const Shape& s = world.shape;
    AttentionBackward b;
    b.q = projected.at(0), b.k = projected.at(s.q_row());
    b.v = projected.at(s.q_row() + s.k_row());
    b.dq = gradients.at(0), b.dk = gradients.at(s.q_row());
    b.dv = gradients.at(s.q_row() + s.k_row());
    b.q_stride = b.k_stride = b.v_stride = projected.stride;
    b.dq_stride = b.dk_stride = b.dv_stride = gradients.stride;
    b.out = out.at(0), b.dout = dout.at(0), b.lse = lse.data();
    b.out_stride = b.dout_stride = out.stride;
    b.cu_seqlens = cu_seqlens.data();
    b.tokens = world.tokens, b.sequences = static_cast<int64_t>(world.lengths.size());
    b.query_heads = s.hq, b.kv_heads = s.hk, b.head_dim = b.value_dim = s.d;
    b.max_len = *std::max_element(world.lengths.begin(), world.lengths.end());
    b.scale = 1.0f / std::sqrt(static_cast<float>(s.d));
    return b;
  }

  // Guards around inputs are NaN: no result may depend on them.
  static void place(const Rows& to, const Bits& from, int64_t row) {
    Bits all(static_cast<size_t>(to.array.count()), 0x7fff);
    for (int64_t t = 0; t < to.tokens; ++t) {
      std::copy_n(from.begin() + t * row, row, all.begin() + (kGuardRows + t) * to.stride);
    }
    to.upload(all);
  }

  AttentionForward describe_forward() const {
    AttentionForward f;
    f.q = problem.q, f.k = problem.k, f.v = problem.v;
    f.q_stride = f.k_stride = f.v_stride = projected.stride;
    f.out = out.at(0), f.out_stride = out.stride, f.lse = lse.data();
    f.cu_seqlens = cu_seqlens.data();
    f.tokens = world.tokens;
    f.query_heads = problem.query_heads, f.kv_heads = problem.kv_heads;
    f.head_dim = problem.head_dim;
    f.runs.whole = {problem.sequences, problem.max_len, problem.max_len};
    f.scale = problem.scale;
    return f;
  }

  void run_forward() {
    forward.workspace = forward_workspace.data();
    forward.workspace_bytes = attention_forward_workspace(forward);
    SLX_CUDA(attention_forward(forward, nullptr));
    SLX_CUDA(cudaDeviceSynchronize());
  }

  // The forward's result, [tokens, hq d].
  Bits read_out() const {
    const Bits all = out.download();
    Bits rows;
    for (int64_t t = kGuardRows; t < kGuardRows + out.tokens; ++t) {
      const auto row = all.begin() + t * out.stride;
      rows.insert(rows.end(), row, row + world.shape.q_row());
    }
    return rows;
  }

  // The whole array of gradients, including guards and unused tokens.
  Bits backward() {
    gradients.upload(Bits(static_cast<size_t>(gradients.array.count()), kGuard));
    workspace.set_bytes(0xff);
    SLX_CUDA(attention_backward(problem, nullptr));
    SLX_CUDA(cudaDeviceSynchronize());
    check_workspace();
    return gradients.download();
  }

  void check_workspace() const {
    std::vector<uint8_t> end(4096);
    SLX_CUDA(cudaMemcpy(end.data(), workspace.data() + problem.workspace_bytes, 4096,
                        cudaMemcpyDeviceToHost));
    const auto touched = std::count_if(end.begin(), end.end(), [](uint8_t x) { return x != 0xff; });
    if (touched != 0) std::printf("%td bytes written behind the workspace\n", touched);
    failures += touched != 0;
  }

  uint16_t gradient(const Bits& bits, int64_t token, int64_t column) const {
    return bits[static_cast<size_t>((kGuardRows + token) * gradients.stride + column)];
  }
};

}  // namespace slimexx::kernels::testing
