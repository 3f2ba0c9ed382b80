// Checks the arguments and chooses the fused tensor-core path or the path with logits in memory.
#include "slimexx/kernels/lm_head.h"

#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/lm_head/products.h"
#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/vocabulary.h"

namespace slimexx::kernels {
namespace {

constexpr size_t kLogitBytes = size_t{64} << 20;

bool in_range(float temperature) {
  return temperature >= lm_head::kLeastTemperature && temperature <= lm_head::kLargestTemperature;
}

constexpr int64_t kMaxSize = INT32_MAX / 2;
constexpr const char* kTemperatureFault = "lm_head: the temperature must be from 2^-10 to 2^10";
constexpr const char* kWorkspaceFault = "lm_head: the workspace is null or not 16-byte aligned";

int64_t dlogits_stride(const LmHeadGradient& g, int64_t vocabulary) {
  return g.dlogits_stride == 0 ? vocabulary : g.dlogits_stride;
}

const char* find_product_fault(const LmHeadProduct& p) {
  if (p.rows < 0 || p.vocabulary <= 0 || p.k <= 0) {
    return "lm_head: rows must be at least 0, vocabulary and k at least 1";
  }
  if (p.rows > kMaxSize || p.vocabulary > kMaxSize || p.k > kMaxSize) {
    return "lm_head: rows, vocabulary and k must be < 2^30";
  }
  if (p.rows == 0) return nullptr;
  if (p.hidden == nullptr || p.w == nullptr) return "lm_head: hidden or w is null";
  if (lm_head_takes_tensor_cores(p.vocabulary, p.k) &&
      (!is_aligned(p.hidden, 16) || !is_aligned(p.w, 16))) {
    return "lm_head: hidden and w must be 16-byte aligned";
  }
  return nullptr;
}

const char* find_gradient_fault(const LmHeadGradient& g, int64_t vocabulary) {
  if (g.targets == nullptr || g.lse == nullptr || g.dlog_probs == nullptr || g.dlogits == nullptr) {
    return "lm_head: targets, lse, dlog_probs or dlogits is null";
  }
  if ((g.entropies == nullptr) != (g.dentropies == nullptr)) {
    return "lm_head: entropies and dentropies must both be null or both be given";
  }
  if (g.dlogits_stride != 0 && g.dlogits_stride < vocabulary) {
    return "lm_head: dlogits_stride must be 0 or at least the vocabulary";
  }
  return nullptr;
}

const char* find_fault(const LmHeadForwardArgs& a) {
  if (const char* fault = find_product_fault(a.product)) return fault;
  if (!in_range(a.temperature)) return kTemperatureFault;
  if (a.product.rows == 0) return nullptr;
  if (a.targets == nullptr || a.log_probs == nullptr || a.lse == nullptr) {
    return "lm_head: targets, log_probs or lse is null";
  }
  if (a.workspace == nullptr || !is_aligned(a.workspace, 16)) return kWorkspaceFault;
  if (!is_aligned(a.logits, 16)) return "lm_head: logits must be 16-byte aligned";
  if (a.logits != nullptr && !lm_head_takes_tensor_cores(a.product.vocabulary, a.product.k)) {
    return "lm_head: logits can be kept only if vocabulary and k are multiples of 8";
  }
  return nullptr;
}

const char* find_fault(const LmHeadBackwardArgs& a) {
  if (const char* fault = find_product_fault(a.product)) return fault;
  if (!in_range(a.gradient.temperature)) return kTemperatureFault;
  if (a.product.rows == 0) return nullptr;
  if (const char* fault = find_gradient_fault(a.gradient, a.product.vocabulary)) return fault;
  if (!lm_head_takes_tensor_cores(a.product.vocabulary, a.product.k)) {
    return a.workspace == nullptr || !is_aligned(a.workspace, 16) ? kWorkspaceFault : nullptr;
  }
  if (a.gradient.dlogits_stride % 8 != 0 || !is_aligned(a.gradient.dlogits, 16)) {
    return "lm_head: dlogits must be 16-byte aligned, its stride a multiple of 8";
  }
  return nullptr;
}

const char* find_fault(const LmHeadKeptArgs& a) {
  if (a.rows < 0 || a.vocabulary <= 0 || a.rows > kMaxSize || a.vocabulary > kMaxSize) {
    return "lm_head: rows must be at least 0, vocabulary at least 1, both < 2^30";
  }
  if (a.vocabulary % 8 != 0)
    return "lm_head: logits can be kept only if the vocabulary is a multiple of 8";
  const LmHeadGradient& g = a.gradient;
  if (!in_range(g.temperature)) return kTemperatureFault;
  if (a.rows == 0) return nullptr;
  if (a.logits == nullptr) return "lm_head: logits is null";
  if (const char* fault = find_gradient_fault(g, a.vocabulary)) return fault;
  if (g.dlogits_stride % 8 != 0 || !is_aligned(g.dlogits, 16) || !is_aligned(a.logits, 16)) {
    return "lm_head: logits and dlogits must be 16-byte aligned, the stride a multiple of 8";
  }
  if (g.dlogits == a.logits && g.dlogits_stride != 2 * a.vocabulary) {
    return "lm_head: if dlogits overwrite the logits, dlogits_stride must be twice the vocabulary";
  }
  return nullptr;
}

// The path with logits in memory, one chunk of rows at a time. Its workspace: the logits of a
// chunk, their log-normalisers, and the workspace of the vocabulary kernels.
struct LogitChunk {
  int64_t stride, rows;

  LogitChunk(int64_t all_rows, int64_t vocabulary)
      : stride((vocabulary + 3) / 4 * 4),
        rows(std::clamp<int64_t>(static_cast<int64_t>(kLogitBytes / sizeof(float)) / stride, 1,
                                 std::max<int64_t>(all_rows, 1))) {}

  size_t logit_bytes() const { return static_cast<size_t>(rows * stride) * sizeof(float); }
  size_t lse_bytes() const { return static_cast<size_t>(rows + 3) / 4 * 16; }
  size_t bytes(int64_t vocabulary) const {
    return logit_bytes() + lse_bytes() +
           std::max(normalize_logits_workspace(rows, vocabulary),
                    gather_log_probs_workspace(rows, vocabulary));
  }
};

const char* as_text(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// The logits of one chunk of rows in f32, divided by the temperature, and their log-normalisers.
struct Logits {
  LogitRows z;
  float* lse;
  void* workspace;

  Logits(void* all_workspace, const LogitChunk& chunk, int64_t count, int64_t vocabulary)
      : z{static_cast<float*>(all_workspace), chunk.stride, count, vocabulary} {
    char* const after = static_cast<char*>(all_workspace) + chunk.logit_bytes();
    lse = reinterpret_cast<float*>(after);
    workspace = after + chunk.lse_bytes();
  }

  const char* compute(const LmHeadProduct& p, int64_t first, float temperature,
                      cudaStream_t stream) const {
    GemmArgs product;
    product.x = static_cast<const uint16_t*>(p.hidden) + first * p.k;
    product.w = p.w;
    product.y = z.logits;
    product.m = z.rows;
    product.n = p.vocabulary;
    product.k = p.k;
    product.output = GemmOutput::kF32;
    product.y_stride = z.stride;
    if (const char* fault = launch_gemm(product, stream)) return fault;
    return as_text(normalize_logits(z, lse, nullptr, temperature, workspace, stream));
  }
};

const char* forward_by_logits(const LmHeadForwardArgs& a, cudaStream_t stream) {
  const LmHeadProduct& p = a.product;
  const LogitChunk chunk(p.rows, p.vocabulary);
  for (int64_t first = 0; first < p.rows; first += chunk.rows) {
    Logits logits(a.workspace, chunk, std::min(chunk.rows, p.rows - first), p.vocabulary);
    logits.lse = a.lse + first;
    if (const char* fault = logits.compute(p, first, a.temperature, stream)) return fault;
    float* const entropies = a.entropies == nullptr ? nullptr : a.entropies + first;
    const cudaError_t error = gather_log_probs(a.log_probs + first, entropies, logits.z, logits.lse,
                                               a.targets + first, logits.workspace, stream);
    if (error != cudaSuccess) return cudaGetErrorString(error);
  }
  return nullptr;
}

const char* backward_by_logits(const LmHeadBackwardArgs& a, cudaStream_t stream) {
  const LmHeadProduct& p = a.product;
  const LmHeadGradient& g = a.gradient;
  const int64_t stride = dlogits_stride(g, p.vocabulary);
  const LogitChunk chunk(p.rows, p.vocabulary);
  for (int64_t first = 0; first < p.rows; first += chunk.rows) {
    const Logits logits(a.workspace, chunk, std::min(chunk.rows, p.rows - first), p.vocabulary);
    if (const char* fault = logits.compute(p, first, g.temperature, stream)) return fault;
    const bool entropies = g.entropies != nullptr;
    const cudaError_t error = log_probs_backward(
        static_cast<uint16_t*>(g.dlogits) + first * stride, stride, logits.z, g.lse + first,
        g.targets + first, entropies ? g.entropies + first : nullptr, g.dlog_probs + first,
        entropies ? g.dentropies + first : nullptr, g.temperature, stream);
    if (error != cudaSuccess) return cudaGetErrorString(error);
  }
  return nullptr;
}

}  // namespace

size_t lm_head_forward_workspace(int64_t rows, int64_t vocabulary, int64_t k, bool entropies) {
  if (lm_head_takes_tensor_cores(vocabulary, k)) {
    return lm_head::sums_workspace(rows, vocabulary, entropies);
  }
  return LogitChunk(rows, vocabulary).bytes(vocabulary);
}

const char* lm_head_forward(const LmHeadForwardArgs& a, cudaStream_t stream) {
  if (const char* fault = find_fault(a)) return fault;
  if (a.product.rows == 0) return nullptr;
  if (!lm_head_takes_tensor_cores(a.product.vocabulary, a.product.k)) {
    return forward_by_logits(a, stream);
  }
  int sm_count = 0;
  if (const char* fault = as_text(count_multiprocessors(sm_count))) return fault;
  return lm_head::launch_forward(a, sm_count, stream);
}

size_t lm_head_backward_workspace(int64_t rows, int64_t vocabulary, int64_t k) {
  if (lm_head_takes_tensor_cores(vocabulary, k)) return 0;
  return LogitChunk(rows, vocabulary).bytes(vocabulary);
}

const char* lm_head_backward_logits(const LmHeadBackwardArgs& a, cudaStream_t stream) {
  if (const char* fault = find_fault(a)) return fault;
  if (a.product.rows == 0) return nullptr;
  if (!lm_head_takes_tensor_cores(a.product.vocabulary, a.product.k)) {
    return backward_by_logits(a, stream);
  }
  int sm_count = 0;
  if (const char* fault = as_text(count_multiprocessors(sm_count))) return fault;
  return lm_head::launch_backward(a, sm_count, stream);
}

const char* lm_head_kept_backward(const LmHeadKeptArgs& a, cudaStream_t stream) {
  if (const char* fault = find_fault(a)) return fault;
  if (a.rows == 0) return nullptr;
  return lm_head::launch_kept_backward(a, dlogits_stride(a.gradient, a.vocabulary), stream);
}

}  // namespace slimexx::kernels
