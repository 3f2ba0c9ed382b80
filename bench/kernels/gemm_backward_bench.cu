// Times the gradients of the matrix product beside the first sixteen choices of cuBLASLt's
// heuristic, in turns: those without reductions in place, from which ours comes, and all.
//
//   gemm_backward_bench [choices] M N K [M N K ...]
//   choices: what each choice without reductions in place is and how long it takes
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
constexpr double kTargetUs = 5e3;
constexpr int kRounds = 5;
constexpr int kChoices = 16;
constexpr double kSlow = 1.08;  // times the best of the first round: left out of the others

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

struct Kind {
  bool weight;
  bool accumulate;
  const char* name() const { return !weight ? "dx " : accumulate ? "dw+" : "dw "; }
};

// The choices of the heuristic for dx = dy w, or dw (+)= dy^T x, all as column-major products.
class Cublas {
 public:
  Cublas(const Operands& o, const Kind& kind, uint32_t reductions) : o_(o), kind_(kind) {
    SLX_LT(cublasLtCreate(&handle_));
    SLX_LT(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const bool weight = kind.weight;
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
    SLX_LT(cublasLtMatmulAlgoGetHeuristic(handle_, product_, a_, b_, d_, d_, preference, kChoices,
                                          choices_.data(), &found_));
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
    const cublasLtMatmulHeuristicResult_t& result = choices_[static_cast<size_t>(choice)];
    std::string text;
    for (const auto& [name, attribute] : {std::pair{"id", CUBLASLT_ALGO_CONFIG_ID},
                                          {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                                          {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                                          {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                                          {"red", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
                                          {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
                                          {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
                                          {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID},
                                          {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID}}) {
      int32_t value = 0;  // some attributes have 16 bits only
      size_t written = 0;
      const bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                          attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
      SLX_LT(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, attribute, &value, narrow ? 2 : 4,
                                                  &written));
      text += std::string(" ") + name + " " + std::to_string(value);
    }
    char waves[64];
    std::snprintf(waves, sizeof(waves), " waves %.2f workspace %zu", double(result.wavesCount),
                  result.workspaceSize);
    return text + waves;
  }
  void launch(int choice) {
    const float one = 1, beta = kind_.accumulate ? 1 : 0;
    const bool weight = kind_.weight;
    const void* a = weight ? o_.x.data() : o_.w.data();
    void* d = weight ? static_cast<void*>(o_.dw.data()) : static_cast<void*>(o_.dx.data());
    SLX_LT(cublasLtMatmul(handle_, product_, &one, a, a_, o_.dy.data(), b_, &beta, d, d_, d, d_,
                          &choices_[static_cast<size_t>(choice)].algo, o_.workspace.data(),
                          kGemmBackwardWorkspaceBytes, nullptr));
  }

 private:
  const Operands& o_;
  Kind kind_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t product_;
  cublasLtMatrixLayout_t a_, b_, d_;
  std::array<cublasLtMatmulHeuristicResult_t, kChoices> choices_;
  int found_ = 0;
};

// Median microseconds of each, in turns; of those that the first round shows to be slow, its time.
std::vector<double> measure_in_turns(const std::vector<Launch>& launches) {
  std::vector<std::vector<double>> rounds(launches.size());
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < launches.size(); ++i) {
      if (i > 0 && round > 0 && rounds[i][0] > kSlow * best) continue;
      rounds[i].push_back(measure(launches[i], kTargetUs));
      best = round > 0 || (i > 0 && best < rounds[i][0]) ? best : rounds[i][0];
    }
  }
  std::vector<double> us;
  for (std::vector<double>& r : rounds) {
    std::sort(r.begin(), r.end());
    us.push_back(r[r.size() / 2]);
  }
  return us;
}

void compare(const Operands& o, const Kind& kind, bool with_choices) {
  const GemmWorkspace workspace{o.workspace.data(), kGemmBackwardWorkspaceBytes};
  std::vector<Launch> launches = {[&] {
    if (kind.weight) {
      GemmWeightGradArgs args{o.dy.data(), o.x.data(), o.dw.data(), o.m, o.n, o.k};
      args.accumulate = kind.accumulate;
      require(launch_gemm_weight_grad(args, workspace, nullptr));
    } else {
      require(launch_gemm_input_grad({o.dy.data(), o.w.data(), o.dx.data(), o.m, o.n, o.k},
                                     workspace, nullptr));
    }
  }};
  Cublas ordered(o, kind, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  Cublas any(o, kind, CUBLASLT_REDUCTION_SCHEME_MASK);
  for (int i = 0; i < ordered.count(); ++i) launches.push_back([&, i] { ordered.launch(i); });
  for (int i = 0; i < any.count() && !with_choices; ++i) {
    launches.push_back([&, i] { any.launch(i); });
  }
  const std::vector<double> us = measure_in_turns(launches);
  const auto split = us.begin() + 1 + ordered.count();
  const auto best_ordered = std::min_element(us.begin() + 1, split);
  const auto best = std::min_element(us.begin() + 1, us.end());
  const double tflops = 2e-6 * double(o.m) * double(o.n) * double(o.k) / us[0];
  std::printf(
      "%s %ld %ld %ld %9.1f us %6.1f TFLOP/s %4.1f %% of nominal; best ordered is choice %ld: "
      "%.3f, best of all: %.3f of ours\n",
      kind.name(), long(o.m), long(o.n), long(o.k), us[0], tflops, 100 * tflops / kNominalTflops,
      long(best_ordered - us.begin() - 1), *best_ordered / us[0], *best / us[0]);
  for (int i = 0; with_choices && i < ordered.count(); ++i) {
    std::printf("  %2d%s: %.1f us\n", i, ordered.describe(i).c_str(), us[size_t(i) + 1]);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const bool with_choices = argc > 1 && std::string(argv[1]) == "choices";
  for (int i = with_choices ? 2 : 1; i + 2 < argc; i += 3) {
    const Operands o(std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2]));
    for (const Kind kind : {Kind{false, false}, {true, false}, {true, true}}) {
      compare(o, kind, with_choices);
    }
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
