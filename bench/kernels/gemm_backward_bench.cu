// Times the gradients of the matrix product beside the first eight choices of cuBLASLt's heuristic,
// in turns: those without reductions in place, from which ours comes, and all.
//
//   gemm_backward_bench [choices] M N K [M N K ...]
//   choices: also what each choice is and how long it takes
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/kernels/gemm_backward.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
constexpr double kNominalTflops = 989;
constexpr double kTargetUs = 10e3;

void check_lt(cublasStatus_t status, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "line %d: cuBLASLt status %d\n", line, static_cast<int>(status));
  std::exit(2);
}
#define SLX_LT(call) check_lt((call), __LINE__)

struct Operands {
  Operands(int64_t m_, int64_t n_, int64_t k_)
      : m(m_),
        n(n_),
        k(k_),
        dy(m * n),
        x(m * k),
        w(n * k),
        dx(m * k),
        dw(n * k),
        workspace(kGemmBackwardWorkspaceBytes) {
    fill_normal<<<2048, 256>>>(dy.data(), dy.count(), 1, 1.0f);
    fill_normal<<<2048, 256>>>(x.data(), x.count(), 2, 1.0f);
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 3, 0.02f);
    dw.set_bytes(0);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t m, n, k;
  Bf16Array dy, x, w, dx;
  DeviceArray<float> dw;
  DeviceArray<uint8_t> workspace;
};

using Launch = std::function<void()>;

// Microseconds of one call.
double measure(const Launch& launch, double target_us) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    SLX_CUDA(cudaEventCreate(&begin));
    SLX_CUDA(cudaEventCreate(&end));
  }
  const auto time = [&](int repeats) {
    SLX_CUDA(cudaEventRecord(begin));
    for (int i = 0; i < repeats; ++i) launch();
    SLX_CUDA(cudaEventRecord(end));
    SLX_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    SLX_CUDA(cudaEventElapsedTime(&ms, begin, end));
    return static_cast<double>(ms) * 1e3 / repeats;
  };
  return time(std::clamp(static_cast<int>(target_us / time(2)), 2, 200));
}

void require(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "%s\n", fault);
  std::exit(2);
}

// The choices of the heuristic for dx = dy w, or dw += dy^T x, all as column-major products.
class Cublas {
 public:
  Cublas(const Operands& o, bool weight, uint32_t reductions) : o_(o), weight_(weight) {
    SLX_LT(cublasLtCreate(&handle_));
    SLX_LT(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = weight ? CUBLAS_OP_T : CUBLAS_OP_N;
    SLX_LT(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSB, &transpose,
                                          sizeof(transpose)));
    SLX_LT(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, o.k, weight ? o.m : o.n, o.k));
    SLX_LT(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, o.n, o.m, o.n));
    SLX_LT(cublasLtMatrixLayoutCreate(&d_, weight ? CUDA_R_32F : CUDA_R_16BF, o.k,
                                      weight ? o.n : o.m, o.k));
    cublasLtMatmulPreference_t preference;
    SLX_LT(cublasLtMatmulPreferenceCreate(&preference));
    SLX_LT(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kGemmBackwardWorkspaceBytes,
        sizeof(kGemmBackwardWorkspaceBytes)));
    SLX_LT(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
    SLX_LT(cublasLtMatmulAlgoGetHeuristic(handle_, product_, a_, b_, d_, d_, preference,
                                          static_cast<int>(choices_.size()), choices_.data(),
                                          &found_));
    cublasLtMatmulPreferenceDestroy(preference);
  }
  Cublas(const Cublas&) = delete;
  ~Cublas() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatmulDescDestroy(product_);
    cublasLtDestroy(handle_);
  }
  int count() const { return found_; }
  std::string describe(int choice) const {
    const cublasLtMatmulAlgo_t& algo = choices_[static_cast<size_t>(choice)].algo;
    std::string text;
    for (const auto& [name, attribute] : {std::pair{"id", CUBLASLT_ALGO_CONFIG_ID},
                                          {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                                          {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                                          {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                                          {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                                          {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                                          {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION}}) {
      int32_t value = -1;
      size_t written = 0;
      cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof(value), &written);
      text += std::string(" ") + name + " " + std::to_string(value);
    }
    uint16_t cluster = 0;
    size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                         sizeof(cluster), &written);
    return text + " cluster " + std::to_string(cluster);
  }
  void launch(int choice) {
    const float one = 1, beta = weight_ ? 1 : 0;
    const void* a = weight_ ? o_.x.data() : o_.w.data();
    void* d = weight_ ? static_cast<void*>(o_.dw.data()) : static_cast<void*>(o_.dx.data());
    SLX_LT(cublasLtMatmul(handle_, product_, &one, a, a_, o_.dy.data(), b_, &beta, d, d_, d, d_,
                          &choices_[static_cast<size_t>(choice)].algo, o_.workspace.data(),
                          kGemmBackwardWorkspaceBytes, nullptr));
  }

 private:
  const Operands& o_;
  bool weight_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t product_;
  cublasLtMatrixLayout_t a_, b_, d_;
  std::array<cublasLtMatmulHeuristicResult_t, 8> choices_;
  int found_ = 0;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void compare(const Operands& o, bool weight, bool with_choices) {
  const GemmWorkspace workspace{o.workspace.data(), kGemmBackwardWorkspaceBytes};
  std::vector<Launch> launches = {[&] {
    if (weight) {
      require(launch_gemm_weight_grad({o.dy.data(), o.x.data(), o.dw.data(), o.m, o.n, o.k},
                                      workspace, nullptr));
    } else {
      require(launch_gemm_input_grad({o.dy.data(), o.w.data(), o.dx.data(), o.m, o.n, o.k},
                                     workspace, nullptr));
    }
  }};
  Cublas ordered(o, weight, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  Cublas any(o, weight, CUBLASLT_REDUCTION_SCHEME_MASK);
  for (int i = 0; i < ordered.count(); ++i) launches.push_back([&, i] { ordered.launch(i); });
  for (int i = 0; i < any.count(); ++i) launches.push_back([&, i] { any.launch(i); });
  std::vector<std::vector<double>> rounds(launches.size());
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < launches.size(); ++i) {
      rounds[i].push_back(measure(launches[i], kTargetUs));
    }
  }
  std::vector<double> us;
  for (const std::vector<double>& r : rounds) us.push_back(median(r));
  const auto split = us.begin() + 1 + ordered.count();
  const auto best_ordered = std::min_element(us.begin() + 1, split);
  const auto best_any = std::min_element(split, us.end());
  const double tflops = 2e-6 * double(o.m) * double(o.n) * double(o.k) / us[0];
  std::printf(
      "%s %ld %ld %ld %9.1f us %6.1f TFLOP/s %4.1f %% of nominal; best ordered is choice "
      "%ld: %.3f, best of all: %.3f of ours\n",
      weight ? "dw" : "dx", long(o.m), long(o.n), long(o.k), us[0], tflops,
      100 * tflops / kNominalTflops, long(best_ordered - us.begin() - 1), *best_ordered / us[0],
      *best_any / us[0]);
  for (int i = 0; with_choices && i < ordered.count(); ++i) {
    std::printf("  choice %d:%s: %.1f us\n", i, ordered.describe(i).c_str(), us[size_t(i) + 1]);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const bool with_choices = argc > 1 && std::string(argv[1]) == "choices";
  for (int i = with_choices ? 2 : 1; i + 2 < argc; i += 3) {
    const Operands o(std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2]));
    compare(o, false, with_choices);
    compare(o, true, with_choices);
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
