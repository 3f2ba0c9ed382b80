// Dense bf16 matrix product on Hopper: y[m, n] = x[m, k] w[n, k]^T (+ bias[n]).
//
// Every element is one fp32 chain over k in ascending steps of 16 on the tensor cores, plus the
// bias in fp32: that number is stored (f32), or rounded once (bf16). K is never split. So a row of
// y has the same bits for every m and under every GemmConfig, and the bf16 output is the rounding
// of the f32 output; a configuration only changes the time.
//
// The tensor cores want n and k in multiples of 8 and w 16-byte aligned. Other products go to a
// slow kernel whose chain takes k one by one: other bits, but also the same for every m. The choice
// depends on n, k, the address and the stride of w only.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

enum class GemmOutput : uint8_t { kBf16, kF32 };

struct GemmArgs {
  // On the tensor cores x and y must be 16-byte aligned and bias 4-byte; else to whole elements.
  const void* x = nullptr;     // [m, k] bf16, row-major
  const void* w = nullptr;     // [n, k] bf16, row-major
  const void* bias = nullptr;  // [n] bf16, or null
  void* y = nullptr;           // [m, n] bf16 or f32, row-major
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // The kernel may start, and read w, before earlier kernels of the stream have ended; it reads and
  // writes nothing else early. Allowed if w is not written by the overlapping launches directly
  // before it and not by the kernel before those: in decode, between updates.
  bool overlap_previous = false;
  GemmOutput output = GemmOutput::kBf16;
  // Elements from row to row, 0 means n; on the tensor cores rows take whole 16 bytes.
  int64_t y_stride = 0;
  // The same of the operands, 0 means k: they may be columns of wider rows. Of launch_gemm alone.
  int64_t x_stride = 0, w_stride = 0;
};

struct GemmConfig {
  bool swap_operands = false;  // true: weights are the rows of the tensor-core product
  int rows = 0;                // output tile: of x; of w if swapped, then any multiple of 8 <= 128
  int columns = 0;             // output tile: of w, or of x if operands are swapped
  int cluster = 1;             // blocks, adjacent along tokens, that share the weights
  int band = 1;                // row tiles walked together before the next band (L2 reuse)
  int blocks_per_sm = 1;       // 2: half the stages each, only where a stage is small
  int lead = 0;                // K blocks by which the first warpgroup runs ahead of the second
  int tokens = 0;              // rows of x that a tile takes, if fewer than it has room for
  bool ping_pong = false;      // one warpgroup computes a tile, the other the next one
};

// The configurations that are compiled in, for tests and benchmarks.
int count_gemm_configs();
GemmConfig get_gemm_config(int index);

// The one expected to be fastest. A pure function of the sizes.
GemmConfig choose_gemm_config(int64_t m, int64_t n, int64_t k);

// Queues the product on `stream`. Null if it was queued, else the fault as a static text. With a
// configuration, only products for the tensor cores.
[[nodiscard]] const char* launch_gemm(const GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_gemm(const GemmArgs& args, const GemmConfig& config,
                                      cudaStream_t stream);

// h[m, n / 2] = silu(gate) * up, where x w^T (+ bias) is gate in its first n / 2 features and up in
// the others: for every m and under every configuration the bits of launch_gemm into bf16 followed
// by swiglu_forward, without gate and up in memory. In `args` y is h, bf16, and a y_stride of 0
// means n / 2; n must be a multiple of 16, k of 64, w 16-byte aligned.
bool fuses_swiglu(int64_t n, int64_t k, const void* w);
int count_gemm_swiglu_configs();
GemmConfig get_gemm_swiglu_config(int index);
GemmConfig choose_gemm_swiglu_config(int64_t m, int64_t n, int64_t k);
[[nodiscard]] const char* launch_gemm_swiglu(const GemmArgs& args, cudaStream_t stream);
[[nodiscard]] const char* launch_gemm_swiglu(const GemmArgs& args, const GemmConfig& config,
                                             cudaStream_t stream);

}  // namespace slimexx::kernels
