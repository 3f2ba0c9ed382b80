// Dense bf16 matrix product on Hopper: y[m, n] = x[m, k] w[n, k]^T (+ bias[n]).
//
// Every element is one fp32 chain over k in ascending steps of 16 on the tensor cores, plus the
// bias in fp32. The result is stored as f32 or rounded once to bf16. There is no split-K. So a row
// of y has the same bits for every m and every GemmConfig, and the bf16 output is the rounded f32
// output. A configuration changes only the time.
//
// The tensor cores need n and k in multiples of 8 and w 16-byte aligned. A slow kernel computes
// other products; its chain adds one k at a time. Its bits differ from the tensor cores' bits, but
// are also the same for every m. The choice of kernel depends only on n, k, and the address and
// stride of w.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

enum class GemmOutput : uint8_t { kBf16, kF32 };

struct GemmArgs {
  // On the tensor cores x and y must be 16-byte aligned and bias 4-byte; otherwise pointers must be
  // aligned to elements.
  const void* x = nullptr;     // [m, k] bf16, row-major
  const void* w = nullptr;     // [n, k] bf16, row-major
  const void* bias = nullptr;  // [n] bf16, or null
  void* y = nullptr;           // [m, n] bf16 or f32, row-major
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // The kernel may start and read w, but nothing else, before earlier kernels of the stream have
  // ended. Allowed only if w is not written by the overlapping launches directly before this one,
  // nor by the kernel before those. This holds in decode between weight updates.
  bool overlap_previous = false;
  GemmOutput output = GemmOutput::kBf16;
  // Elements from row to row; 0: n. On the tensor cores a multiple of 16 bytes.
  int64_t y_stride = 0;
  // Elements from row to row; 0: k. Operands may be columns of wider rows. launch_gemm only.
  int64_t x_stride = 0, w_stride = 0;
};

struct GemmConfig {
  bool swap_operands = false;  // swap AB: weights are the M operand
  int rows = 0;                // tile: rows of x; if swapped, of w, then any multiple of 8 <= 128
  int columns = 0;             // tile: rows of w; if swapped, of x
  int cluster = 1;             // thread blocks, adjacent along tokens, that share weight loads
  int band = 1;                // rows of tiles that are computed together, for L2 reuse
  int blocks_per_sm = 1;       // 2: each block has half the stages; only for small stages
  int lead = 0;                // K blocks by which the first warpgroup runs ahead of the second
  int tokens = 0;              // rows of x per tile; 0: as many as the tile holds
  bool ping_pong = false;      // two warpgroups compute alternate tiles
};

// The configurations that are compiled in, for tests and benchmarks.
int count_gemm_configs();
GemmConfig get_gemm_config(int index);

// The configuration expected to be fastest. Depends only on the sizes.
GemmConfig choose_gemm_config(int64_t m, int64_t n, int64_t k);

// Queues the product on `stream`. Returns null, or the error as a static text. The overload with a
// configuration supports only products for the tensor cores.
[[nodiscard]] const char* launch_gemm(const GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_gemm(const GemmArgs& args, const GemmConfig& config,
                                      cudaStream_t stream);

// h[m, n / 2] = silu(gate) * up: gate is the first n / 2 columns of x w^T (+ bias), up is the other
// columns. Neither is written to memory. For every m and configuration the bits are those of
// launch_gemm into bf16 followed by swiglu_forward. In `args` y is h, bf16, and a y_stride of 0
// means n / 2. n must be a multiple of 16, k of 64, w 16-byte aligned.
bool fuses_swiglu(int64_t n, int64_t k, const void* w);
int count_gemm_swiglu_configs();
GemmConfig get_gemm_swiglu_config(int index);
GemmConfig choose_gemm_swiglu_config(int64_t m, int64_t n, int64_t k);
[[nodiscard]] const char* launch_gemm_swiglu(const GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_gemm_swiglu(const GemmArgs& args, const GemmConfig& config,
                                             cudaStream_t stream);

}  // namespace slimexx::kernels
