// Products by cuBLASLt for comparison, with the algorithms that its heuristic suggests for a shape.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

inline void check_lt(cublasStatus_t status, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "cublas.h:%d: a cuBLASLt call failed with status %d\n", line,
               static_cast<int>(status));
  std::exit(2);
}
#define SLX_LT(call) ::slimexx::kernels::testing::check_lt((call), __LINE__)

// d = op(a) op(b) + beta d with contiguous column-major matrices; a and b are bf16, sums are fp32.
struct CublasProduct {
  struct Matrix {
    int64_t rows, columns;
  };
  Matrix a, b, d;  // sizes in memory, before transposition
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cudaDataType d_type = CUDA_R_16BF;
  int choices = 8;  // algorithms to ask for, at most Cublas::kMostChoices
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;

  // y[m, n] = x[m, k] w[n, k]^T with row-major matrices; a is w, b is x.
  static CublasProduct forward(int64_t m, int64_t n, int64_t k, cudaDataType y_type) {
    return {.a = {k, n}, .b = {k, m}, .d = {n, m}, .transpose_a = CUBLAS_OP_T, .d_type = y_type};
  }
};

class Cublas {
 public:
  static constexpr int kMostChoices = 16;

  explicit Cublas(const CublasProduct& p) : workspace_(kWorkspaceBytes) {
    SLX_LT(cublasLtCreate(&handle_));
    SLX_LT(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SLX_LT(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &p.transpose_a,
                                          sizeof(p.transpose_a)));
    SLX_LT(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSB, &p.transpose_b,
                                          sizeof(p.transpose_b)));
    const auto lay_out = [](cublasLtMatrixLayout_t& to, cudaDataType type,
                            const CublasProduct::Matrix& m) {
      SLX_LT(cublasLtMatrixLayoutCreate(&to, type, static_cast<uint64_t>(m.rows),
                                        static_cast<uint64_t>(m.columns), m.rows));
    };
    lay_out(a_, CUDA_R_16BF, p.a);
    lay_out(b_, CUDA_R_16BF, p.b);
    lay_out(d_, p.d_type, p.d);
    cublasLtMatmulPreference_t preference;
    SLX_LT(cublasLtMatmulPreferenceCreate(&preference));
    SLX_LT(cublasLtMatmulPreferenceSetAttribute(preference,
                                                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    SLX_LT(cublasLtMatmulPreferenceSetAttribute(preference,
                                                CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                &p.reductions, sizeof(p.reductions)));
    SLX_LT(cublasLtMatmulAlgoGetHeuristic(handle_, product_, a_, b_, d_, d_, preference, p.choices,
                                          choices_.data(), &found_));
    cublasLtMatmulPreferenceDestroy(preference);
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatmulDescDestroy(product_);
    cublasLtDestroy(handle_);
  }

  int count() const { return found_; }
  void launch(int choice, const void* a, const void* b, void* d, float beta = 0,
              cudaStream_t stream = nullptr) const {
    const float one = 1;
    SLX_LT(cublasLtMatmul(handle_, product_, &one, a, a_, b, b_, &beta, d, d_, d, d_,
                          &choices_[static_cast<size_t>(choice)].algo, workspace_.data(),
                          kWorkspaceBytes, stream));
  }
  // The algorithm's tile and cluster shape, as cuBLASLt's enumeration values, and its split-K.
  std::string name(int choice) const {
    const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
      return std::to_string(read(choice, attribute));
    };
    return std::to_string(choice) + ":tile" + get(CUBLASLT_ALGO_CONFIG_TILE_ID) + ",cluster" +
           get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) + ",split" +
           get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  }
  // All attributes of an algorithm.
  std::string describe(int choice) const {
    std::string text;
    for (const auto& [name, attribute] : {std::pair{"id", CUBLASLT_ALGO_CONFIG_ID},
                                          {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                                          {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                                          {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                                          {"red", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                                          {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                                          {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
                                          {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID},
                                          {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID}})
      text += std::string(" ") + name + " " + std::to_string(read(choice, attribute));
    const cublasLtMatmulHeuristicResult_t& result = choices_[static_cast<size_t>(choice)];
    char waves[64];
    std::snprintf(waves, sizeof(waves), " waves %.2f workspace %zu", double(result.wavesCount),
                  result.workspaceSize);
    return text + waves;
  }

 private:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  int32_t read(int choice, cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    int32_t value = 0;  // zero first: some attributes have only 16 bits
    size_t written = 0;
    const bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    SLX_LT(cublasLtMatmulAlgoConfigGetAttribute(&choices_[static_cast<size_t>(choice)].algo,
                                                attribute, &value, narrow ? 2 : 4, &written));
    return value;
  }

  DeviceArray<uint8_t> workspace_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t product_;
  cublasLtMatrixLayout_t a_, b_, d_;
  std::array<cublasLtMatmulHeuristicResult_t, kMostChoices> choices_;
  int found_ = 0;
};

}  // namespace slimexx::kernels::testing
