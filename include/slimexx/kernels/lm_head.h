// The LM head without materialised logits: log-softmax over the vocabulary, log-probs of the
// targets and entropies, directly from the accumulators of the product; and the gradient with
// respect to the logits.
//
// The bits are those of launch_gemm with f32 output, then normalize_logits, then gather_log_probs
// (or log_probs_backward), as in sampling. The bits of a row do not depend on the number of rows.
// If lm_head_takes_tensor_cores(), hidden and w must be 16-byte aligned. Otherwise the functions
// named above run, and the workspace holds the logits of some rows at a time.
//
// Pointers are device pointers. Nothing is allocated, nothing synchronises; each function queues
// its work on `stream` and returns null, or the fault as a static text.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/lm_head_sizes.h"

namespace slimexx::kernels {

// logits = hidden w^T, computed in the forward and again in the backward.
struct LmHeadProduct {
  const void* hidden = nullptr;  // [rows, k] bf16, row-major
  const void* w = nullptr;       // [vocabulary, k] bf16, row-major
  int64_t rows = 0, vocabulary = 0, k = 0;
};

struct LmHeadForwardArgs {
  LmHeadProduct product;
  const int32_t* targets = nullptr;  // [rows]; outside the vocabulary the log-prob is NaN
  float temperature = 1.0f;          // from 2^-10 to 2^10: z = logit / temperature
  float* log_probs = nullptr;        // [rows]: z of the target - lse
  float* lse = nullptr;              // [rows]: log sum exp z
  float* entropies = nullptr;        // [rows]: -sum p log p; null: not computed
  void* workspace = nullptr;         // of lm_head_forward_workspace() bytes, 16-byte aligned
  // [rows, vocabulary], 16-byte aligned: receives the logits before the temperature, for
  // lm_head_kept_backward. Null: not kept. Must be null without tensor cores.
  float* logits = nullptr;
};

// In bytes. Per row: 8 (12 with entropies) per 256 columns, plus 4. Without tensor cores also 64
// MiB for logits, or the logits of one row if those are larger.
size_t lm_head_forward_workspace(int64_t rows, int64_t vocabulary, int64_t k, bool entropies);
[[nodiscard]] const char* lm_head_forward(const LmHeadForwardArgs& args, cudaStream_t stream);

// The gradient with respect to the raw logits:
//   (dlp * (1_target - p) - dH * p * (log p + H)) / temperature,  p = exp(z - lse)
struct LmHeadGradient {
  const int32_t* targets = nullptr;   // [rows]
  float temperature = 1.0f;           // the same as in the forward
  const float* lse = nullptr;         // [rows], from the forward
  const float* entropies = nullptr;   // [rows], from the forward; null if dentropies is null
  const float* dlog_probs = nullptr;  // [rows]
  const float* dentropies = nullptr;  // [rows]
  void* dlogits = nullptr;            // [rows, vocabulary] bf16, 16-byte aligned
  int64_t dlogits_stride = 0;         // elements, a multiple of 8; 0: vocabulary
};

struct LmHeadBackwardArgs {
  LmHeadProduct product;
  LmHeadGradient gradient;
  void* workspace = nullptr;  // of lm_head_backward_workspace() bytes, 16-byte aligned
};

// Recomputes the logits of these rows and writes dlogits. The caller computes the gradients of
// hidden and w from dlogits, some thousand rows at a time. The workspace has 0 bytes if
// lm_head_takes_tensor_cores().
size_t lm_head_backward_workspace(int64_t rows, int64_t vocabulary, int64_t k);
[[nodiscard]] const char* lm_head_backward_logits(const LmHeadBackwardArgs& args,
                                                  cudaStream_t stream);

struct LmHeadKeptArgs {
  const float* logits = nullptr;     // [rows, vocabulary], from lm_head_forward
  int64_t rows = 0, vocabulary = 0;  // vocabulary: a multiple of 8
  // dlogits either does not overlap the logits, or is the logits themselves with a stride of 2 *
  // vocabulary: then each row uses the first half of the bytes of its logits.
  LmHeadGradient gradient;
};

// Writes the same bits as lm_head_backward_logits, without the product.
[[nodiscard]] const char* lm_head_kept_backward(const LmHeadKeptArgs& args, cudaStream_t stream);

}  // namespace slimexx::kernels
