// Times the LM head, the plain bf16 product of the same shape (ours and cuBLASLt's), and the LM
// head with f32 logits in memory. Their order changes in every round, because the device's clock
// depends on the previous kernels.
//
//   lm_head_bench ROWS VOCABULARY K [ROWS VOCABULARY K ...]
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/cublas.h"
#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/lm_head.h"
#include "slimexx/kernels/vocabulary.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
using FloatArray = DeviceArray<float>;
constexpr double kNominalTflops = 989;
constexpr int64_t kChunk = 2048;  // rows per chunk of logits, or of their gradient
constexpr int kRounds = 9;

void require_queued(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "launch: %s\n", fault);
  std::exit(2);
}

__global__ void fill_targets(int32_t* targets, int64_t rows, int64_t vocabulary) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < rows) targets[i] = static_cast<int32_t>(mix_bits(i + 1) % vocabulary);
}

__global__ void fill_value(float* out, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value;
}

struct Shape {
  int64_t rows, vocabulary, k;
  int64_t chunk() const { return std::min(rows, kChunk); }
};

struct Operands {
  explicit Operands(const Shape& s_)
      : s(s_),
        hidden(s.rows * s.k),
        w(s.vocabulary * s.k),
        y(s.rows * s.vocabulary),
        logits(s.chunk() * s.vocabulary),
        targets(s.rows),
        log_probs(s.rows),
        lse(s.rows),
        entropies(s.rows),
        gradients(s.rows),
        workspace(static_cast<int64_t>(
            std::max({lm_head_forward_workspace(s.rows, s.vocabulary, s.k, true),
                      normalize_logits_workspace(s.chunk(), s.vocabulary),
                      gather_log_probs_workspace(s.chunk(), s.vocabulary)}))) {
    fill_normal<<<2048, 256>>>(hidden.data(), hidden.count(), 1, 1.0f);
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 2, 0.02f);
    const auto blocks = static_cast<unsigned>((s.rows + 255) / 256);
    fill_targets<<<blocks, 256>>>(targets.data(), s.rows, s.vocabulary);
    fill_value<<<blocks, 256>>>(gradients.data(), s.rows, 1e-3f);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  Shape s;
  Bf16Array hidden, w, y;
  FloatArray logits;
  DeviceArray<int32_t> targets;
  FloatArray log_probs, lse, entropies, gradients;
  DeviceArray<uint8_t> workspace;
};

void multiply(const Operands& o, int64_t first, int64_t rows, GemmOutput output, void* y) {
  GemmArgs args;
  args.x = o.hidden.data() + first * o.s.k;
  args.w = o.w.data();
  args.y = y;
  args.m = rows;
  args.n = o.s.vocabulary;
  args.k = o.s.k;
  args.output = output;
  require_queued(launch_gemm(args, nullptr));
}

void forward(const Operands& o, float temperature, bool entropies) {
  LmHeadForwardArgs args;
  args.product = {o.hidden.data(), o.w.data(), o.s.rows, o.s.vocabulary, o.s.k};
  args.targets = o.targets.data();
  args.temperature = temperature;
  args.log_probs = o.log_probs.data();
  args.lse = o.lse.data();
  args.entropies = entropies ? o.entropies.data() : nullptr;
  args.workspace = o.workspace.data();
  require_queued(lm_head_forward(args, nullptr));
}

void forward_by_logits(const Operands& o, float temperature, bool entropies) {
  for (int64_t first = 0; first < o.s.rows; first += o.s.chunk()) {
    const int64_t rows = std::min(o.s.chunk(), o.s.rows - first);
    multiply(o, first, rows, GemmOutput::kF32, o.logits.data());
    const LogitRows z = {o.logits.data(), o.s.vocabulary, rows, o.s.vocabulary};
    SLX_CUDA(
        normalize_logits(z, o.lse.data() + first, nullptr, temperature, o.workspace.data(), 0));
    SLX_CUDA(gather_log_probs(
        o.log_probs.data() + first, entropies ? o.entropies.data() + first : nullptr, z,
        o.lse.data() + first, o.targets.data() + first, o.workspace.data(), 0));
  }
}

void backward(const Operands& o, float temperature) {
  LmHeadBackwardArgs args;
  args.product = {o.hidden.data(), o.w.data(), o.s.chunk(), o.s.vocabulary, o.s.k};
  args.gradient.targets = o.targets.data();
  args.gradient.temperature = temperature;
  args.gradient.lse = o.lse.data();
  args.gradient.entropies = o.entropies.data();
  args.gradient.dlog_probs = o.gradients.data();
  args.gradient.dentropies = o.gradients.data();
  args.gradient.dlogits = o.y.data();
  require_queued(lm_head_backward_logits(args, nullptr));
}

void backward_by_logits(const Operands& o, float temperature) {
  multiply(o, 0, o.s.chunk(), GemmOutput::kF32, o.logits.data());
  const LogitRows z = {o.logits.data(), o.s.vocabulary, o.s.chunk(), o.s.vocabulary};
  SLX_CUDA(log_probs_backward(o.y.data(), o.s.vocabulary, z, o.lse.data(), o.targets.data(),
                              o.entropies.data(), o.gradients.data(), o.gradients.data(),
                              temperature, 0));
}

double measure_ms(const std::function<void()>& launch) {
  static const std::array<cudaEvent_t, 2> events = [] {
    std::array<cudaEvent_t, 2> made;
    for (cudaEvent_t& event : made) SLX_CUDA(cudaEventCreate(&event));
    return made;
  }();
  constexpr int kRepeats = 2;
  SLX_CUDA(cudaEventRecord(events[0]));
  for (int i = 0; i < kRepeats; ++i) launch();
  SLX_CUDA(cudaEventRecord(events[1]));
  SLX_CUDA(cudaEventSynchronize(events[1]));
  float ms = 0;
  SLX_CUDA(cudaEventElapsedTime(&ms, events[0], events[1]));
  return static_cast<double>(ms) / kRepeats;
}

struct Candidate {
  std::string name;
  int64_t rows;
  int bare;  // index of the plain product of the same shape
  std::function<void()> launch;
  std::vector<double> times = {};
  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

void launch_theirs(const Cublas& cublas, int choice, const Operands& o) {
  cublas.launch(choice, o.w.data(), o.hidden.data(), o.y.data());
}

int choose_cublas(const Cublas& cublas, const Operands& o) {
  int best = 0;
  double best_ms = 1e30;
  for (int i = 0; i < cublas.count(); ++i) {
    measure_ms([&] { launch_theirs(cublas, i, o); });
    const double ms = measure_ms([&] { launch_theirs(cublas, i, o); });
    if (ms < best_ms) best_ms = ms, best = i;
  }
  return best;
}

void measure_shape(const Shape& s) {
  const Operands o(s);
  CublasProduct product = CublasProduct::forward(s.rows, s.vocabulary, s.k, CUDA_R_16BF);
  product.choices = 4;
  const Cublas cublas(product);
  const int choice = choose_cublas(cublas, o);
  std::vector<Candidate> list = {
      {"product, bf16", s.rows, 0, [&] { multiply(o, 0, s.rows, GemmOutput::kBf16, o.y.data()); }},
      {"cuBLASLt, bf16", s.rows, 0, [&] { launch_theirs(cublas, choice, o); }},
      {"log-probs", s.rows, 0, [&] { forward(o, 1.0f, false); }},
      {"log-probs, entropies", s.rows, 0, [&] { forward(o, 1.0f, true); }},
      {"log-probs / 0.6", s.rows, 0, [&] { forward(o, 0.6f, false); }},
      {"log-probs, entropies / 0.6", s.rows, 0, [&] { forward(o, 0.6f, true); }},
      {"log-probs, entropies from logits", s.rows, 0, [&] { forward_by_logits(o, 1.0f, true); }},
      {"product, bf16, a chunk", s.chunk(), 7,
       [&] { multiply(o, 0, s.chunk(), GemmOutput::kBf16, o.y.data()); }},
      {"dlogits, a chunk", s.chunk(), 7, [&] { backward(o, 1.0f); }},
      {"dlogits / 0.6, a chunk", s.chunk(), 7, [&] { backward(o, 0.6f); }},
      {"dlogits from logits, one chunk", s.chunk(), 7, [&] { backward_by_logits(o, 1.0f); }},
  };
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 shuffling(1);
  for (int round = 0; round <= kRounds; ++round) {
    for (const size_t i : order) {
      const double ms = measure_ms(list[i].launch);
      if (round > 0) list[i].times.push_back(ms);
    }
    std::shuffle(order.begin(), order.end(), shuffling);
  }
  std::printf("rows %ld vocabulary %ld k %ld: forward workspace %.1f MiB\n", long(s.rows),
              long(s.vocabulary), long(s.k),
              double(lm_head_forward_workspace(s.rows, s.vocabulary, s.k, true)) / (1 << 20));
  for (const Candidate& c : list) {
    const double ms = c.median();
    const double tflops = 2.0 * double(c.rows) * double(s.vocabulary) * double(s.k) / ms * 1e-9;
    std::printf("  %-31s %9.1f us %6.1f TFLOP/s %5.1f %% of nominal, x %.3f of the bare product",
                c.name.c_str(), ms * 1e3, tflops, 100 * tflops / kNominalTflops,
                ms / list[static_cast<size_t>(c.bare)].median());
    if (c.rows == s.rows) std::printf(", x %.3f of cuBLASLt", ms / list[1].median());
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  if (argc < 4 || argc % 3 != 1) {
    std::fprintf(stderr, "usage: lm_head_bench ROWS VOCABULARY K [ROWS VOCABULARY K ...]\n");
    return 2;
  }
  for (int i = 1; i + 2 < argc; i += 3) {
    slimexx::kernels::testing::measure_shape(
        {std::atol(argv[i]), std::atol(argv[i + 1]), std::atol(argv[i + 2])});
  }
  return 0;
}
