// The token losses of ops/policy_loss.h in one kernel. Pointers are device pointers; null where the
// options do not want the array. Formulas and meaning: include/slimexx/ops/policy_loss.h, whose CPU
// implementation is the reference.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels {

struct PolicyLossArgs {
  int32_t kind = 0, kl_kind = 0, tis = 0;  // ops::LossKind, ops::KlKind, ops::TisMode
  float eps_clip = 0, eps_clip_high = 0, eps_clip_c = 0, entropy_coef = 0, kl_coef = 0;
  float tis_clip = 0, tis_clip_low = 0;
  bool use_kl = false, unbiased_kl = false;
  const float* log_probs = nullptr;  // all [rows]
  const float* entropies = nullptr;
  const float* old_log_probs = nullptr;
  const float* ref_log_probs = nullptr;
  const float* rollout_log_probs = nullptr;
  const float* advantages = nullptr;
  const float* mask = nullptr;
  const float* weights = nullptr;
  const int32_t* cu_rows = nullptr;  // [sequences + 1], for kGspo
  int64_t rows = 0, sequences = 0;
  float* dlog_probs = nullptr;
  float* dentropies = nullptr;  // null: not wanted
  double* metrics = nullptr;    // [ops::kNumLossMetrics], added to (kLogProbMaxDiff by maximum)
};
size_t policy_loss_workspace(int64_t rows, int64_t sequences);
// Sums run in a fixed order: the same bits every run.
cudaError_t policy_loss(const PolicyLossArgs& args, void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels
