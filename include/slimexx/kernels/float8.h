// FP8 (e4m3) on Hopper: quantisation, and y[m, n] = x[m, k] w[n, k]^T (+ bias[n]) of quantised
// operands.
//
// Weights have an f32 scale per 64 rows and 128 columns, activations one per row and 128 columns.
// An output is one chain: acc = 0; for each 128 of k in ascending order, t is the sum of four wgmma
// of K = 32, which starts from zero, and acc = fma(t, round(scale of x * scale of w), acc); then
// the bias is added in f32. The result is stored as f32 or rounded once to bf16. There is no
// split-K. So a row of y has the same bits for every m and every Fp8GemmConfig.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/both_sides.h"
#include "slimexx/kernels/gemm.h"
#include "slimexx/tensor/float8.h"

namespace slimexx::kernels {

inline constexpr int64_t kFp8GroupColumns = 128;  // columns per scale
inline constexpr int64_t kFp8UnitRows = 64;       // rows per scale of a weight

// The row stride of the scales of m rows of activations.
SLX_BOTH_SIDES int64_t fp8_scale_stride(int64_t m) { return (m + 3) / 4 * 4; }

// q and scales of activations: tensor::f8_row_scale of each row's groups of 128 columns.
struct QuantiseRowsArgs {
  const void* x = nullptr;   // [m, k] bf16, rows 16-byte aligned
  void* q = nullptr;         // [m, k] e4m3, 16-byte aligned
  float* scales = nullptr;   // [k / 128, scale_stride] f32
  int64_t x_stride = 0;      // elements from row to row, a multiple of 8; 0: k
  int64_t scale_stride = 0;  // 0: fp8_scale_stride(m)
  int64_t m = 0;
  int64_t k = 0;  // a multiple of 128
};
// Returns null, or the error as a static text, as all launch functions here do.
[[nodiscard]] const char* launch_quantise_rows(const QuantiseRowsArgs& args, cudaStream_t stream);

// q and scales of weights. A block has two units of 64 rows, which share tensor::f8_scale of their
// largest magnitude. The kernel after this one must be launched without overlap.
struct QuantiseBlocksArgs {
  const void* w = nullptr;         // [rows, k] bf16, 16-byte aligned
  void* rounded = nullptr;         // [rows, k] bf16: q * scale, rounded; may be w, or null
  void* q = nullptr;               // [rows, k] e4m3, 16-byte aligned
  float* scales = nullptr;         // [rows / 64, k / 128] f32
  const int32_t* units = nullptr;  // [num_blocks, 2]: the units of each block, the second may be
                                   // -1; null: 2 b and 2 b + 1, without the second if past the end
  int64_t num_blocks = 0;          // used only if units is not null
  int64_t* changed = nullptr;  // increased by the number of bytes of q that changed; may be null
  int64_t rows = 0;            // a multiple of 64
  int64_t k = 0;               // a multiple of 128
  tensor::F8ScaleRule rule = tensor::F8ScaleRule::kPowerOfTwo;
};
[[nodiscard]] const char* launch_quantise_blocks(const QuantiseBlocksArgs& args,
                                                 cudaStream_t stream);

// Whether a product may quantise `rows` rows of x itself: they must fit into shared memory.
inline constexpr int64_t kFp8MostInputRows = 16;
inline constexpr int64_t kFp8MostInputBytes = 36 << 10;
SLX_BOTH_SIDES bool fp8_gemm_quantises(int64_t rows, int64_t k) {
  return rows >= 1 && rows <= kFp8MostInputRows && (rows | 1) * k <= kFp8MostInputBytes;
}

struct Fp8GemmArgs {
  const void* x = nullptr;          // [m, k] e4m3, contiguous, 16-byte aligned; or see x_is_bf16
  const float* x_scales = nullptr;  // [k / 128, x_scale_stride], 16-byte aligned
  const void* w = nullptr;          // [n, k] e4m3, 16-byte aligned
  const float* w_scales = nullptr;  // [n / 64, k / 128]
  const void* bias = nullptr;       // [n] bf16, or null
  void* y = nullptr;                // [m, n] bf16 or f32, 16-byte aligned
  int64_t m = 0;
  int64_t n = 0;               // a multiple of 64
  int64_t k = 0;               // a multiple of 128
  int64_t x_scale_stride = 0;  // a multiple of 4; 0: fp8_scale_stride(m)
  int64_t w_stride = 0;        // elements from row to row, a multiple of 16; 0: k
  int64_t w_scale_stride = 0;  // 0: k / 128
  int64_t y_stride = 0;        // elements, rows of y are 16-byte aligned; 0: n
  GemmOutput output = GemmOutput::kBf16;
  // x is [m, k] bf16 with rows x_stride elements apart, a multiple of 8 (0: k). The product
  // quantises it, and y has the bits of launch_quantise_rows followed by the product. x_scales are
  // not read. Only if fp8_gemm_quantises(m, k), with a configuration that suits_fp8_bf16_input.
  bool x_is_bf16 = false;
  int64_t x_stride = 0;  // read only with x_is_bf16
  // The kernel may start and read w, its scales and the bias, but nothing else, before earlier
  // kernels of the stream have ended: see GemmArgs.
  bool overlap_previous = false;
};

struct Fp8GemmConfig {
  bool swap_operands = false;  // swap AB: weights are the M operand
  int rows = 0;     // tile: rows of x; if swapped, of w, a multiple of 8 (in a cluster 16)
  int columns = 0;  // tile: rows of w; if swapped, of x
  int cluster = 1;  // thread blocks, adjacent along the columns, that share loads of the rows
  int band = 1;     // rows of tiles that are computed together, for L2 reuse
  int lead = 0;     // K blocks by which a warpgroup runs ahead of the next one
  int tokens = 0;   // swapped: rows of x per tile; 0: as many as the tile holds
};

// The configurations that are compiled in, for tests and benchmarks. A swapped configuration may
// have up to 56 rows fewer than listed.
int count_fp8_gemm_configs();
Fp8GemmConfig get_fp8_gemm_config(int index);

bool suits_fp8_bf16_input(const Fp8GemmConfig& config);  // whether it is compiled for x_is_bf16

// The configuration expected to be fastest. Depends only on the sizes and on x_is_bf16.
Fp8GemmConfig choose_fp8_gemm_config(int64_t m, int64_t n, int64_t k, bool x_is_bf16 = false);

[[nodiscard]] const char* launch_fp8_gemm(const Fp8GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_fp8_gemm(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                          cudaStream_t stream);

// h[m, n / 2] = silu(gate) * up, like launch_gemm_swiglu, with the bits of launch_fp8_gemm into
// bf16 followed by swiglu_forward. In `args` y is h, bf16, and a y_stride of 0 means n / 2. n must
// be a multiple of 128.
int count_fp8_gemm_swiglu_configs();
Fp8GemmConfig get_fp8_gemm_swiglu_config(int index);
Fp8GemmConfig choose_fp8_gemm_swiglu_config(int64_t m, int64_t n, int64_t k,
                                            bool x_is_bf16 = false);
[[nodiscard]] const char* launch_fp8_gemm_swiglu(const Fp8GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_fp8_gemm_swiglu(const Fp8GemmArgs& args,
                                                 const Fp8GemmConfig& config, cudaStream_t stream);

}  // namespace slimexx::kernels
