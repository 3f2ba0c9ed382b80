// Times the gradients of the matrix product and, in alternation, the first sixteen algorithms that
// cuBLASLt's heuristic suggests: once without in-place reductions (we use one of these), once
// without this restriction.
//
//   gemm_backward_bench [choices] M N K [M N K ...]
//   choices: describes and times each algorithm without in-place reductions
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernels/cublas.h"
#include "slimexx/kernels/gemm_backward.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_backward_case.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr double kNominalTflops = 989;
constexpr double kTargetUs = 5e3;
constexpr int kRounds = 5;
constexpr double kSlow =
    1.08;  // times the best of round one: slower candidates are not timed again

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

const char* name_short(const BackwardKind& kind) {
  return !kind.weight ? "dx " : kind.accumulate ? "dw+" : "dw ";
}

// dx = dy w, or dw (+)= dy^T x, as a column-major product.
CublasProduct describe(const BackwardOperands& o, const BackwardKind& kind, uint32_t reductions) {
  CublasProduct p{.a = {o.shape.k, kind.weight ? o.shape.m : o.shape.n},
                  .b = {o.shape.n, o.shape.m},
                  .d = {o.shape.k, kind.weight ? o.shape.n : o.shape.m},
                  .choices = Cublas::kMostChoices,
                  .reductions = reductions};
  if (kind.weight) p.transpose_b = CUBLAS_OP_T, p.d_type = CUDA_R_32F;
  return p;
}

void launch_theirs(const Cublas& cublas, int choice, const BackwardOperands& o,
                   const BackwardKind& kind) {
  if (kind.weight) {
    cublas.launch(choice, o.x.data(), o.dy.data(), o.start_dw.data(), kind.accumulate ? 1 : 0);
  } else {
    cublas.launch(choice, o.w.data(), o.dy.data(), o.start_dx.data());
  }
}

// Median microseconds of each launch, measured in alternation. Launches that are slow in the first
// round keep the time of that round.
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

void compare(const BackwardOperands& o, const BackwardKind& kind, bool with_choices) {
  const GemmWorkspace workspace{o.workspace.data(), kGemmBackwardWorkspaceBytes};
  std::vector<Launch> launches = {[&] {
    if (kind.weight) {
      GemmWeightGradArgs args{o.dy.data(), o.x.data(), o.start_dw.data(),
                              o.shape.m,   o.shape.n,  o.shape.k};
      args.accumulate = kind.accumulate;
      require(launch_gemm_weight_grad(args, workspace, nullptr));
    } else {
      require(launch_gemm_input_grad(
          {o.dy.data(), o.w.data(), o.start_dx.data(), o.shape.m, o.shape.n, o.shape.k}, workspace,
          nullptr));
    }
  }};
  const Cublas ordered(describe(o, kind, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const Cublas any(describe(o, kind, CUBLASLT_REDUCTION_SCHEME_MASK));
  for (int i = 0; i < ordered.count(); ++i) {
    launches.push_back([&, i] { launch_theirs(ordered, i, o, kind); });
  }
  for (int i = 0; i < any.count() && !with_choices; ++i) {
    launches.push_back([&, i] { launch_theirs(any, i, o, kind); });
  }
  const std::vector<double> us = measure_in_turns(launches);
  const auto split = us.begin() + 1 + ordered.count();
  const auto best_ordered = std::min_element(us.begin() + 1, split);
  const auto best = std::min_element(us.begin() + 1, us.end());
  const double tflops = 2e-6 * double(o.shape.m) * double(o.shape.n) * double(o.shape.k) / us[0];
  std::printf(
      "%s %ld %ld %ld %9.1f us %6.1f TFLOP/s %4.1f %% of nominal; best without in-place reductions "
      "is choice %ld: %.3f of our time, best of all: %.3f\n",
      name_short(kind), long(o.shape.m), long(o.shape.n), long(o.shape.k), us[0], tflops,
      100 * tflops / kNominalTflops, long(best_ordered - us.begin() - 1), *best_ordered / us[0],
      *best / us[0]);
  for (int i = 0; with_choices && i < ordered.count(); ++i) {
    std::printf("  %2d%s: %.1f us\n", i, ordered.describe(i).c_str(), us[size_t(i) + 1]);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const bool with_choices = argc > 1 && std::string(argv[1]) == "choices";
  for (int i = with_choices ? 2 : 1; i + 2 < argc; i += 3) {
    const BackwardOperands o({std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2])});
    for (const BackwardKind kind : {BackwardKind{false, false}, {true, false}, {true, true}}) {
      compare(o, kind, with_choices);
    }
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) { return slimexx::kernels::testing::run(argc, argv); }
