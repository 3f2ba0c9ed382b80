// The sizes of each op in value tests, gradient tests and bench/ops_bench.cpp.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::ops::cases {

struct MatmulCase {
  int64_t tokens, outputs, inputs;  // T, N, K
  bool bias = false;
};
// These sizes cover every remainder of the register tiles (rows 12, 6, 2; columns 32, 16) and
// several k blocks (256, 1024).
inline std::vector<MatmulCase> matmul_values() {
  return {{1, 1, 1},           {1, 17, 3, true},    {2, 16, 16},   {3, 33, 65, true},
          {5, 31, 257},        {11, 47, 300, true}, {12, 32, 256}, {13, 100, 513, true},
          {25, 64, 1030},      {4, 5, 2100, true},  {37, 160, 64}, {0, 8, 8},
          {400, 40, 24, true}, {60, 700, 30}};
}
inline std::vector<MatmulCase> matmul_gradients() {
  return {{3, 5, 4, true}, {14, 9, 7}, {1, 33, 3, true}};
}
inline std::vector<MatmulCase> matmul_bench() {
  return {{1024, 1024, 1024}, {256, 4096, 1024}, {1, 4096, 4096},  {8, 4096, 4096},
          {16, 4096, 4096},   {64, 4096, 4096},  {8, 151552, 128}, {256, 256, 64}};
}

struct AttentionCase {
  std::vector<int32_t> lengths;
  int64_t query_heads, kv_heads, dim;
};
inline std::vector<AttentionCase> attention_values() {
  return {{{1}, 1, 1, 8},     {{5, 0, 3}, 4, 2, 16}, {{64, 65, 1}, 2, 2, 24}, {{130, 7}, 6, 2, 33},
          {{200}, 14, 2, 64}, {{97}, 4, 4, 80},      {{40, 129}, 8, 1, 128}};
}
inline std::vector<AttentionCase> attention_gradients() {
  return {{{4, 1, 6}, 4, 2, 5}, {{67}, 2, 1, 3}};
}
inline std::vector<AttentionCase> attention_bench() {
  return {{{2048}, 16, 8, 128},
          {{512, 512, 512, 512}, 14, 2, 64},
          {{64, 64, 64, 64, 64, 64, 64, 64}, 14, 2, 64}};
}

struct NormCase {
  int64_t tokens, heads, size;  // heads 0: rows of `size`
};
inline std::vector<NormCase> norm_values() {
  return {{1, 0, 1}, {3, 0, 17}, {4, 0, 64}, {5, 0, 130}, {2, 0, 896}, {3, 4, 64}, {7, 2, 33}};
}
inline std::vector<NormCase> norm_gradients() { return {{3, 0, 7}, {2, 3, 5}, {2, 0, 70}}; }
inline std::vector<NormCase> norm_bench() { return {{1024, 0, 4096}, {1024, 16, 128}}; }

struct RotaryCase {
  int64_t tokens, heads, dim, rotary_dim;
};
inline std::vector<RotaryCase> rotary_values() {
  return {{3, 2, 8, 8}, {5, 3, 128, 64}, {4, 1, 66, 34}};
}
inline std::vector<RotaryCase> rotary_bench() { return {{1024, 32, 128, 128}}; }

struct RowsCase {
  int64_t rows, columns;
};
inline std::vector<RowsCase> swiglu_values() { return {{1, 1}, {3, 15}, {2, 64}, {5, 100}}; }
inline std::vector<RowsCase> swiglu_bench() { return {{1024, 4864}}; }
inline std::vector<RowsCase> log_prob_values() {
  return {{1, 1}, {3, 10}, {2, 100}, {3, 8192}, {2, 20001}};
}
inline std::vector<RowsCase> log_prob_gradients() { return {{2, 5}, {3, 70}}; }
inline std::vector<RowsCase> log_prob_bench() { return {{64, 151552}, {1, 151552}}; }
inline std::vector<RowsCase> sampling_bench() { return {{16, 151552}}; }

}  // namespace slimexx::ops::cases
