#include "slimexx/kernels/policy_loss.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/policy_loss_args.h"
#include "slimexx/kernels/token_loss.h"

namespace slimexx::ops::cuda {

void policy_loss(const Context& ctx, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options) {
  const kernels::PolicyLossArgs args =
      describe_policy_loss(dlog_probs, dentropies, metrics, rows, options);
  const ScratchScope scratch(ctx, kernels::policy_loss_workspace(args.rows, args.sequences));
  if (ctx.planning()) return;
  SLX_CHECK(!kernels::takes_sequence_means(options) || rows.device_cu_rows.defined());
  SLX_CUDA(kernels::policy_loss(args, scratch.data(), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
