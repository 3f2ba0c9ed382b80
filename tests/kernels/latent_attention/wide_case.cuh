// A case of the backward pass of heads with their own keys and values, as latent attention is
// trained: any sizes up to 256, with or without lists of keys. The check and the benchmark share
// it.
#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/attention_backward.h"
#include "tests/kernels/latent_attention/latent_case.cuh"

namespace slimexx::kernels::testing {

struct WideCase {
  std::vector<int32_t> lengths;
  int64_t heads = 1, dim = 256, values = 256;
  int64_t list = 0;  // keys that a query sees; 0: all up to its own
  uint64_t seed = 31;

  int64_t row() const { return heads * dim; }
  int64_t value_row() const { return heads * values; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(dim)); }
};

inline std::string describe(const WideCase& c) {
  std::string name = "backward by head " + std::to_string(c.heads) + " heads of " +
                     std::to_string(c.dim) + " and " + std::to_string(c.values);
  if (c.list > 0) name += ", lists of " + std::to_string(c.list);
  name += ", seed " + std::to_string(c.seed) + ", lengths";
  for (const int32_t length : c.lengths) name += " " + std::to_string(length);
  return name;
}

// `out` and `lse` are random too: a check of values replaces them with the forward's results.
struct WideOperands {
  explicit WideOperands(const WideCase& c)
      : of(c),
        host_cu(sum_up(c.lengths)),
        host_lists(static_cast<size_t>(host_cu.back() * c.list)),
        cu(host_cu),
        q(tokens() * c.row()),
        k(tokens() * c.row()),
        v(tokens() * c.value_row()),
        out(tokens() * c.value_row()),
        dout(tokens() * c.value_row()),
        dq(tokens() * c.row()),
        dk(tokens() * c.row()),
        dv(tokens() * c.value_row()),
        lse(std::vector<float>(static_cast<size_t>(tokens() * c.heads))),
        lists(tokens() * c.list) {
    fill(q, tokens() * c.row(), c.seed);
    fill(k, tokens() * c.row(), c.seed + 1);
    fill(v, tokens() * c.value_row(), c.seed + 2);
    fill(out, tokens() * c.value_row(), c.seed + 3);
    fill(dout, tokens() * c.value_row(), c.seed + 4);
    std::mt19937_64 random(c.seed);
    for (size_t b = 0; b < c.lengths.size() && c.list > 0; ++b)
      for (int32_t p = 0; p < c.lengths[b]; ++p)
        draw_list(host_lists.data() + (host_cu[b] + p) * c.list, p, c.list, random);
    lists.set(host_lists);
    describe();
    problem.workspace_bytes = attention_backward_workspace(problem);
    workspace = std::make_unique<Array<uint8_t>>(static_cast<int64_t>(problem.workspace_bytes));
    problem.workspace = workspace->data();
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t tokens() const { return host_cu.back(); }

  WideCase of;
  std::vector<int32_t> host_cu, host_lists;
  Array<int32_t> cu;
  Bf16Array q, k, v, out, dout, dq, dk, dv;
  FloatArray lse;
  Array<int32_t> lists;
  std::unique_ptr<Array<uint8_t>> workspace;
  AttentionBackward problem;

 private:
  static std::vector<int32_t> sum_up(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> sums = {0};
    for (const int32_t length : lengths) sums.push_back(sums.back() + length);
    return sums;
  }
  void describe() {
    AttentionBackward& b = problem;
    b.q = q.data(), b.k = k.data(), b.v = v.data(), b.out = out.data(), b.dout = dout.data();
    b.lse = lse.data();
    b.dq = dq.data(), b.dk = dk.data(), b.dv = dv.data();
    b.q_stride = b.k_stride = b.dq_stride = b.dk_stride = of.row();
    b.v_stride = b.dv_stride = b.out_stride = b.dout_stride = of.value_row();
    b.cu_seqlens = cu.data();
    b.tokens = tokens(), b.sequences = static_cast<int64_t>(of.lengths.size());
    b.query_heads = b.kv_heads = of.heads, b.head_dim = of.dim, b.value_dim = of.values;
    b.max_len = *std::max_element(of.lengths.begin(), of.lengths.end());
    b.scale = of.scale();
    if (of.list > 0) b.selected = lists.data(), b.list_width = of.list;
  }
};

}  // namespace slimexx::kernels::testing
