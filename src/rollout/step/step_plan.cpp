#include "rollout/step/step_plan.h"

#include <algorithm>
#include <vector>

#include "rollout/step/step_forward.h"
#include "slimexx/base/check.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {
namespace {

// Upper bound for one head call. On a GPU a call takes the rows of a whole batch if possible.
int64_t max_logits_bytes(tensor::Device device) {
  return device.is_cpu() ? int64_t{64} << 20 : int64_t{1} << 30;
}

}  // namespace

model::ModelSpec with_cached_layers(model::ModelSpec spec, bool drafts_by_mtp) {
  SLX_CHECK(!drafts_by_mtp || !spec.mtp.empty(), "no MTP layer to draft with");
  if (drafts_by_mtp) spec.layers.push_back(spec.mtp[0].layer);
  return spec;
}

StepSizes step_sizes(const model::Decoder& decoder, const EngineOptions& options,
                     int64_t num_sampled_tokens) {
  StepSizes sizes;
  sizes.max_sequence_tokens =
      options.max_sequence_tokens > 0 ? options.max_sequence_tokens : decoder.max_positions();
  // A step never has more tokens than all running sequences together.
  sizes.max_tokens = std::min(options.chunked_prefill_size,
                              options.max_running_requests * (sizes.max_sequence_tokens - 1));
  sizes.max_sequences = std::min(options.max_running_requests, sizes.max_tokens);
  sizes.page_tokens = options.page_tokens;
  sizes.num_mtp_drafts = options.drafts_by_mtp ? options.num_draft_tokens : 0;
  sizes.allowed_tokens = num_sampled_tokens >= decoder.spec().vocab_size ? 0 : num_sampled_tokens;
  return sizes;
}

bool step_together(const dist::Groups& groups) { return groups.ep.size() > groups.tp.size(); }

int64_t most_own_rows(const StepSizes& sizes, const dist::Groups& groups) {
  return (sizes.max_tokens + groups.tp.size() - 1) / groups.tp.size();
}

int64_t most_ep_rows(const StepSizes& sizes, const dist::Groups& groups) {
  return most_own_rows(sizes, groups) * groups.ep.size() * groups.etp.size();
}

int64_t count_head_rows(const model::Decoder& decoder, tensor::Device device,
                        const StepSizes& sizes) {
  return std::min(sizes.max_sequences,
                  model::head_chunk_rows(decoder.spec().head(),
                                         {.max_logits_bytes = max_logits_bytes(device)}));
}

int64_t plan_recorded_bytes(const model::ModelSpec& spec, const dist::Groups& groups,
                            int64_t num_mtp_drafts) {
  constexpr int64_t kLayerLaunches = 14, kOtherLaunches = 16;
  constexpr int64_t kRankLaunches = 16;  // a layer's exchanges between ranks
  constexpr int64_t kLeafLaunches = 10;  // per leaf: two row-parallel products, or the head
  constexpr int64_t kLaunchBytes = 4096, kDriverBytes = int64_t{16} << 20;
  const int64_t of_leaves = spec.leaves > 1 ? kLeafLaunches * spec.leaves : 0;
  const int64_t of_ranks = groups.tp.size() * groups.ep.size() > 1 ? kRankLaunches : 0;
  const int64_t of_layers =
      (spec.num_layers() + num_mtp_drafts) * (kLayerLaunches + of_ranks + of_leaves);
  const int64_t of_heads = (1 + num_mtp_drafts) * (kOtherLaunches + of_leaves);
  return kDriverBytes + kMaxRecordedSteps * kLaunchBytes * (of_layers + of_heads);
}

int64_t plan_step_arena(const model::Decoder& decoder, const model::ModelParameters& weights,
                        tensor::Device device, const StepSizes& sizes, const dist::Groups& groups) {
  using enum tensor::DType;
  const model::ModelSpec spec = with_cached_layers(decoder.local_spec(), sizes.num_mtp_drafts > 0);
  std::vector<model::LayerPages> pages;  // one page per layer, without memory
  for (const model::LayerSpec& layer : spec.layers) {
    const auto page_of = [&](const auto& block) {
      const tensor::DType dtype = weights.embedding.dtype();
      const tensor::Tensor memory(nullptr, kU8, device,
                                  {model::page_bytes(block, dtype, sizes.page_tokens)});
      return model::make_pages(block, dtype, memory, 1, sizes.page_tokens);
    };
    pages.push_back(std::visit(page_of, layer.attention));
  }
  const int64_t head_rows = count_head_rows(decoder, device, sizes);
  const auto array = [&](tensor::DType dtype) {
    return tensor::Tensor(nullptr, dtype, device, {head_rows});
  };
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));
  const SamplingGroup group{
      .rows = array(kI32),
      .parameters = tensor::Tensor(nullptr, kU8, device, {head_rows, kRowBytes}),
      .tokens = array(kI32),
      .log_probs = array(kF32)};
  tensor::Arena plan = tensor::Arena::for_planning(device, "rollout step");
  const ops::Context planning = ops::planning_context(plan, groups, most_ep_rows(sizes, groups));
  const auto plan_step = [&](int64_t max_tokens) {
    const tensor::ArenaScope scope(plan);
    BatchLimits limits = sizes.batch_limits();
    limits.max_tokens = max_tokens;
    const LargestBatch largest = make_largest_batch(device, limits, pages);
    const StepOutput step = forward_step(planning, decoder, weights, largest.batch);
    sample_rows(planning, decoder, weights.head, step.whole, group, sizes.allowed_tokens);
    if (sizes.num_mtp_drafts == 0) return;
    tensor::Tensor y = draft_step(planning, decoder, weights, step, largest.batch.tokens);
    sample_rows(planning, decoder, drafting_head(weights), y, group, sizes.allowed_tokens);
    if (sizes.num_mtp_drafts < 2) return;
    const int64_t rows = largest.batch.attention.page_table.dim(0);
    const DraftChain chain = make_draft_chain(planning, decoder, step.batch,
                                              tensor::Tensor(nullptr, kI32, device, {rows + 1}));
    for (int64_t pass = 1; pass < sizes.num_mtp_drafts; ++pass) {
      y = draft_further(planning, decoder, weights, chain, y);
      sample_rows(planning, decoder, drafting_head(weights), y, group, sizes.allowed_tokens);
    }
  };
  plan_step(sizes.max_tokens);
  // Also plan the largest step with repeated rows: it has fewer rows, but every rank holds all of
  // them.
  const int64_t repeated = most_repeated_rows(decoder.spec(), groups.tp.size());
  if (0 < repeated && repeated < sizes.max_tokens) plan_step(repeated);
  return plan.high_water_bytes();
}

}  // namespace slimexx::rollout
