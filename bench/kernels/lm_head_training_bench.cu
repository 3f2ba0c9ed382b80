// Times the LM head of a train step: log-probs and entropies, the gradient of the logits, and the
// gradients of the hidden states and the weights. Two variants alternate: logits recomputed for a
// chunk of rows at a time, or kept from the forward product.
//
//   lm_head_training_bench ROWS VOCABULARY K [ROWS VOCABULARY K ...]
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/kernels/gemm_backward.h"
#include "slimexx/kernels/lm_head.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
using FloatArray = DeviceArray<float>;
constexpr int kRounds = 7;

void require_queued(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "launch: %s\n", fault);
  std::exit(2);
}

__global__ void fill_rows(int32_t* targets, float* gradients, int64_t rows, int64_t vocabulary) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  targets[i] = static_cast<int32_t>(mix_bits(i + 1) % vocabulary);
  gradients[i] = 1e-3f;
}

struct Head {
  Head(int64_t rows_, int64_t vocabulary_, int64_t k_)
      : rows(rows_),
        vocabulary(vocabulary_),
        k(k_),
        hidden(rows * k),
        w(vocabulary * k),
        dlogits(rows * vocabulary),
        dhidden(rows * k),
        logits(rows * vocabulary),
        dw(vocabulary * k),
        log_probs(rows),
        lse(rows),
        entropies(rows),
        gradients(rows),
        targets(rows),
        workspace(static_cast<int64_t>(lm_head_forward_workspace(rows, vocabulary, k, true))),
        product_workspace(static_cast<int64_t>(kGemmBackwardWorkspaceBytes)) {
    fill_normal<<<2048, 256>>>(hidden.data(), hidden.count(), 1, 1.0f);
    fill_normal<<<2048, 256>>>(w.data(), w.count(), 2, 0.02f);
    fill_rows<<<static_cast<unsigned>((rows + 255) / 256), 256>>>(targets.data(), gradients.data(),
                                                                  rows, vocabulary);
    SLX_CUDA(cudaDeviceSynchronize());
  }

  void forward(bool keep) const {
    LmHeadForwardArgs args{{hidden.data(), w.data(), rows, vocabulary, k}, targets.data()};
    args.log_probs = log_probs.data();
    args.lse = lse.data();
    args.entropies = entropies.data();
    args.workspace = workspace.data();
    args.logits = keep ? logits.data() : nullptr;
    require_queued(lm_head_forward(args, nullptr));
  }
  void form_again(int64_t first, int64_t count) const {
    const LmHeadBackwardArgs args{{hidden.data() + first * k, w.data(), count, vocabulary, k},
                                  describe_gradient(first, dlogits.data(), vocabulary)};
    require_queued(lm_head_backward_logits(args, nullptr));
  }
  void form_kept(void* to, int64_t stride) const {
    const LmHeadKeptArgs args{logits.data(), rows, vocabulary, describe_gradient(0, to, stride)};
    require_queued(lm_head_kept_backward(args, nullptr));
  }
  void input_grad(const void* dy, int64_t stride, int64_t first, int64_t count) const {
    GemmInputGradArgs dx{dy, w.data(), dhidden.data() + first * k, count, vocabulary, k};
    dx.dy_stride = stride;
    require_queued(launch_gemm_input_grad(dx, products(), nullptr));
  }
  void weight_grad(const void* dy, int64_t stride, int64_t first, int64_t count) const {
    GemmWeightGradArgs args{dy, hidden.data() + first * k, dw.data(), count, vocabulary, k};
    args.dy_stride = stride;
    args.accumulate = first > 0;
    require_queued(launch_gemm_weight_grad(args, products(), nullptr));
  }
  void train_again(int64_t chunk) const {
    forward(false);
    for (int64_t first = 0; first < rows; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      form_again(first, count);
      input_grad(dlogits.data(), vocabulary, first, count);
      weight_grad(dlogits.data(), vocabulary, first, count);
    }
  }
  void train_kept() const {
    forward(true);
    form_kept(logits.data(), 2 * vocabulary);
    input_grad(logits.data(), 2 * vocabulary, 0, rows);
    weight_grad(logits.data(), 2 * vocabulary, 0, rows);
  }

  int64_t rows, vocabulary, k;
  Bf16Array hidden, w, dlogits, dhidden;
  FloatArray logits, dw, log_probs, lse, entropies, gradients;
  DeviceArray<int32_t> targets;
  DeviceArray<uint8_t> workspace, product_workspace;

 private:
  LmHeadGradient describe_gradient(int64_t first, void* to, int64_t stride) const {
    LmHeadGradient gradient;
    gradient.targets = targets.data() + first;
    gradient.lse = lse.data() + first;
    gradient.dlog_probs = gradients.data() + first;
    gradient.dlogits = to;
    gradient.dlogits_stride = stride;
    return gradient;
  }
  GemmWorkspace products() const { return {product_workspace.data(), kGemmBackwardWorkspaceBytes}; }
};

double measure_ms(const std::function<void()>& launch) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    SLX_CUDA(cudaEventCreate(&begin));
    SLX_CUDA(cudaEventCreate(&end));
  }
  SLX_CUDA(cudaEventRecord(begin));
  launch();
  SLX_CUDA(cudaEventRecord(end));
  SLX_CUDA(cudaEventSynchronize(end));
  float ms = 0;
  SLX_CUDA(cudaEventElapsedTime(&ms, begin, end));
  return static_cast<double>(ms);
}

struct Candidate {
  std::string name;
  std::function<void()> launch;
  std::vector<double> times = {};
};

__global__ void measure_distance(const float* a, const float* b, int64_t count, double* sums) {
  double away = 0, norm = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    away += difference * difference;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  atomicAdd(sums, away);
  atomicAdd(sums + 1, norm);
}

__global__ void widen(const __nv_bfloat16* from, float* to, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = __bfloat162float(from[i]);
}

// Both variants have the same gradient of the logits; the gradients from it may differ by rounding.
void compare_ways(const Head& h) {
  const FloatArray dw(h.dw.count()), dhidden(h.dhidden.count()), other(h.dhidden.count());
  DeviceArray<double> sums(4);
  sums.set_bytes(0);
  const auto blocks = static_cast<unsigned>((h.dhidden.count() + 255) / 256);
  h.train_again(h.rows);
  SLX_CUDA(cudaMemcpy(dw.data(), h.dw.data(), static_cast<size_t>(dw.count()) * 4,
                      cudaMemcpyDeviceToDevice));
  widen<<<blocks, 256>>>(h.dhidden.data(), dhidden.data(), dhidden.count());
  h.train_kept();
  widen<<<blocks, 256>>>(h.dhidden.data(), other.data(), other.count());
  measure_distance<<<1024, 256>>>(h.dw.data(), dw.data(), dw.count(), sums.data());
  measure_distance<<<1024, 256>>>(other.data(), dhidden.data(), other.count(), sums.data() + 2);
  SLX_CUDA(cudaDeviceSynchronize());
  std::printf("  kept against recomputed logits: dw differs by %.2e of its norm, dhidden by %.2e\n",
              std::sqrt(sums.get(0) / sums.get(1)), std::sqrt(sums.get(2) / sums.get(3)));
}

void measure_shape(int64_t rows, int64_t vocabulary, int64_t k) {
  const Head h(rows, vocabulary, k);
  std::vector<Candidate> list = {
      {"log-probs, entropies", [&] { h.forward(false); }},
      {"log-probs, entropies, logits kept", [&] { h.forward(true); }},
      {"dlogits, recomputed logits", [&] { h.form_again(0, rows); }},
      {"dlogits from kept logits", [&] { h.form_kept(h.dlogits.data(), vocabulary); }},
      {"dlogits overwrite kept logits", [&] { h.form_kept(h.logits.data(), 2 * vocabulary); }},
      {"dhidden", [&] { h.input_grad(h.dlogits.data(), vocabulary, 0, rows); }},
      {"dhidden, wide rows", [&] { h.input_grad(h.logits.data(), 2 * vocabulary, 0, rows); }},
      {"dw", [&] { h.weight_grad(h.dlogits.data(), vocabulary, 0, rows); }},
      {"dw, wide rows", [&] { h.weight_grad(h.logits.data(), 2 * vocabulary, 0, rows); }},
      {"all, recomputed logits, 2208 rows", [&] { h.train_again(2208); }},
      {"all, recomputed logits, 4416 rows", [&] { h.train_again(4416); }},
      {"all, recomputed logits, all rows", [&] { h.train_again(rows); }},
      {"all, logits kept", [&] { h.train_kept(); }},
  };
  for (int round = 0; round <= kRounds; ++round) {
    for (Candidate& c : list) {
      const double ms = measure_ms(c.launch);
      if (round > 0) c.times.push_back(ms);
    }
  }
  std::printf("rows %ld vocabulary %ld k %ld\n", long(rows), long(vocabulary), long(k));
  compare_ways(h);
  for (Candidate& c : list) {
    std::sort(c.times.begin(), c.times.end());
    std::printf("  %-30s %9.1f us\n", c.name.c_str(), c.times[c.times.size() / 2] * 1e3);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  if (argc < 4 || argc % 3 != 1) {
    std::fprintf(stderr, "usage: lm_head_training_bench ROWS VOCABULARY K [...]\n");
    return 2;
  }
  for (int i = 1; i + 2 < argc; i += 3) {
    slimexx::kernels::testing::measure_shape(std::atol(argv[i]), std::atol(argv[i + 1]),
                                             std::atol(argv[i + 2]));
  }
  return 0;
}
