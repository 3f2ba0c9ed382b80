#include "rollout/step/step_runner.h"

#include <algorithm>

#include "rollout/step/step_forward.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {
namespace {

// Rounds the batch sizes of decode steps up, so that few sizes are recorded.
int64_t round_up_sequences(int64_t n, int64_t most) {
  int64_t rounded = 1;
  while (rounded < n) rounded += rounded < 8 ? rounded : rounded < 32 ? 8 : rounded < 64 ? 16 : 32;
  return std::min(rounded, std::max(n, most));
}

constexpr int64_t kShortestKeys = 1024;

}  // namespace

StepRunner::StepRunner(const model::Decoder& decoder, const model::ModelParameters& weights,
                       tensor::Device device, const StepSizes& sizes, int64_t num_pages,
                       tensor::Tensor cache_memory, const dist::Groups& groups, bool records_steps)
    : decoder_(decoder),
      weights_(weights),
      sizes_(sizes),
      head_rows_(count_head_rows(decoder, device, sizes)),
      kv_cache_(with_cached_layers(decoder.local_spec(), sizes.num_mtp_drafts > 0), device,
                weights.embedding.dtype(), num_pages, sizes.page_tokens, cache_memory),
      builder_(device, sizes.batch_limits()),
      arena_(device, plan_step_arena(decoder, weights, device, sizes, groups), "rollout step"),
      groups_(groups),
      peer_memories_(dist::make_peer_memories(groups_, arena_.memory())),
      records_steps_(records_steps && !device.is_cpu() &&
                     (groups.ep.size() == 1 || groups_.ep_memory != nullptr)),
      ctx_(ops::compute_context(arena_, groups_)) {
  ctx_.most_ep_rows = most_ep_rows(sizes, groups);
}

void StepRunner::leave_ranks() {
  dist::cancel(peer_memories_);
  recorded_steps_.clear();
}

StepRunner::~StepRunner() {
  try {
    tensor::synchronize(ctx_.stream);
  } catch (const Error&) {  // the failure that ends the run is already reported
  }
}

int64_t StepRunner::memory_bytes() const {
  return kv_cache_.memory_bytes() + builder_.memory_bytes() + arena_.capacity_bytes() +
         std::ssize(peer_memories_) * dist::PeerMemory::kControlBytes +
         (records_steps_
              ? plan_recorded_bytes(decoder_.local_spec(), ctx_.groups, sizes_.num_mtp_drafts)
              : 0);
}

StepSamples& StepRunner::launch(std::span<const Chunk> chunks, bool makes_drafts) {
  if (const auto shape = decode_shape(chunks, makes_drafts)) {
    queue_decode(chunks, *shape);
  } else {
    queue_step(builder_.build(ctx_.stream, chunks, kv_cache_.layers(), makes_drafts));
  }
  return builder_.await_samples(ctx_.stream);
}

// Queues forward and sampling of the staged batch.
void StepRunner::queue_step(const model::Batch& batch) {
  tensor::ArenaScope scope(arena_);
  ops::fill_sampled_tokens(ctx_, batch.tokens, builder_.sampled_before());
  const StepOutput step = forward_step(ctx_, decoder_, weights_, batch);
  queue_samples(weights_.head, step.whole, builder_.group_samples(head_rows_));
  if (sizes_.num_mtp_drafts > 0) queue_drafts(step);
}

void StepRunner::queue_samples(const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                               const std::vector<SamplingGroup>& groups) {
  for (const SamplingGroup& group : groups) {
    sample_rows(ctx_, decoder_, head, x, group, sizes_.allowed_tokens);
    ops::copy_samples_to_host(ctx_, group.host_tokens, group.host_log_probs, group.tokens,
                              group.log_probs);
  }
}

void StepRunner::queue_drafts(const StepOutput& step) {
  const auto head = drafting_head(weights_);
  DraftRows& drafts = builder_.drafts();
  ops::fill_sampled_tokens(ctx_, drafts.next_tokens(), drafts.sampled_now());
  tensor::Tensor y = draft_step(ctx_, decoder_, weights_, step, drafts.next_tokens());
  queue_samples(head, y, drafts.group_drafts(head_rows_));
  const bool guesses = drafts.guesses_further();
  if (sizes_.num_mtp_drafts < 2 || !(guesses || step_together(groups_))) return;
  const DraftChain chain = make_draft_chain(ctx_, decoder_, step.batch, drafts.chain_cu_seqlens());
  const ops::CheckedDrafts checked = drafts.checked_drafts();
  for (int64_t pass = 1; pass < sizes_.num_mtp_drafts; ++pass) {
    const bool is_first = pass == 1;
    ops::advance_drafts(
        ctx_, chain.pass, chain.from_rows, is_first ? drafts.checked_pass() : chain.pass,
        drafts.drafts_of_pass(pass - 1), is_first ? &checked : nullptr, drafts.draft_pages());
    y = draft_further(ctx_, decoder_, weights_, chain, y);
    if (guesses)
      queue_samples(head, y, drafts.group_chain(head_rows_, pass, chain.pass.parameters));
  }
}

// The shape of the recorded step for these chunks. Empty unless the device is a GPU, one head call
// takes all rows, and every chunk is the next token of its sequence after tokens of earlier steps.
std::optional<BatchBuilder::DecodeShape> StepRunner::decode_shape(std::span<const Chunk> chunks,
                                                                  bool makes_drafts) const {
  if (ctx_.stream.device.is_cpu()) return std::nullopt;
  int64_t longest = 0;
  bool has_drafts = false;
  for (const Chunk& chunk : chunks) {
    if (chunk.count != 1 || !chunk.samples) return std::nullopt;
    if (chunk.adopts_pages && chunk.draft == 0) return std::nullopt;
    has_drafts |= chunk.draft > 0;
    longest = std::max(longest, chunk.begin + std::max<int64_t>(sizes_.num_mtp_drafts, 1));
  }
  const int64_t batch_size = round_up_sequences(std::ssize(chunks), head_rows_);
  if (batch_size > head_rows_) return std::nullopt;
  int64_t keys = kShortestKeys;
  while (keys < longest) keys *= 2;
  return BatchBuilder::DecodeShape{batch_size,
                                   std::min(keys, sizes_.max_pages() * sizes_.page_tokens),
                                   has_drafts, makes_drafts};
}

void StepRunner::queue_decode(std::span<const Chunk> chunks,
                              const BatchBuilder::DecodeShape& shape) {
  const model::Batch& batch = builder_.build_decode(ctx_.stream, chunks, kv_cache_.layers(), shape);
  const RecordedStep step{builder_.current_set(), shape};
  // Recording takes longer than a plain launch, which overlaps with the step before. Recording pays
  // only for shapes that recur.
  if (!records_steps_ || used_steps_.insert(step).second) return queue_step(batch);
  tensor::Graph* graph = recorded_steps_.find(step);
  if (graph == nullptr)
    graph = &recorded_steps_.insert(
        step, [&] { return tensor::Graph(ctx_.stream, [&] { queue_step(batch); }); });
  graph->launch(ctx_.stream);
}

}  // namespace slimexx::rollout
