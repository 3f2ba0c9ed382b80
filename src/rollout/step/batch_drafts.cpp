// The parts of BatchBuilder for drafts of an MTP layer.
#include <algorithm>

#include "rollout/step/batch_builder.h"
#include "slimexx/base/check.h"

namespace slimexx::rollout {

// Draft chunks come last in `chunks`, in the same order of sequences as the other chunks. Rows
// beyond the sequences have no query.
void BatchBuilder::stage_chain(std::span<const Chunk> chunks, bool decodes, int64_t num_rows) {
  if (limits_.num_mtp_drafts < 2) return;
  guesses_further_ = decodes && makes_drafts_;
  const int64_t own = guesses_further_ ? std::ranges::count(chunks, 0, &Chunk::draft) : 0;
  // On the CPU there are no such rows.
  const bool is_cpu = copies_.device.is_cpu();
  num_chain_rows_ = is_cpu ? own : guesses_further_ ? num_rows : std::min<int64_t>(num_rows, 1);
  std::fill_n(first_drafts_.i32(), num_chain_rows_, 0);
  std::fill_n(num_drafts_.i32(), num_chain_rows_, 0);
  std::fill_n(held_tokens_.i32(), num_chain_rows_, 1);
  for (int64_t b = 0; b <= num_chain_rows_; ++b)
    chain_cu_seqlens_.i32()[b] = static_cast<int32_t>(std::min(b, own));
  if (!guesses_further_) return;
  for (int64_t b = 0; b < own; ++b) {
    const Sequence& sequence = *chunks[static_cast<size_t>(b)].sequence;
    held_tokens_.i32()[b] = static_cast<int32_t>(
        std::min(std::ssize(sequence.pages) * limits_.page_tokens, sequence.max_tokens));
  }
  int64_t owner = 0;
  for (int64_t b = own; b < std::ssize(chunks); ++b) {
    const Chunk& draft = chunks[static_cast<size_t>(b)];
    while (owner < own && chunks[static_cast<size_t>(owner)].sequence != draft.sequence) ++owner;
    SLX_CHECK_LT(owner, own);
    if (draft.draft == 1) first_drafts_.i32()[owner] = static_cast<int32_t>(b);
    ++num_drafts_.i32()[owner];
  }
}

const std::vector<SamplingGroup>& BatchBuilder::group_drafts(int64_t max_rows) {
  return cut_groups({draft_parameters_.as_sampling_rows(), draft_tokens_, draft_log_probs_,
                     makes_drafts_ ? num_sampled_rows_ : 0},
                    max_rows, draft_groups_);
}

// A sequence has the same row in the batch and in further passes, so the row numbers are shared.
const std::vector<SamplingGroup>& BatchBuilder::group_chain(int64_t max_rows, int64_t pass,
                                                            tensor::Tensor parameters) {
  return cut_groups(
      {parameters, draft_tokens_, draft_log_probs_, num_chain_rows_, pass * limits_.max_sequences},
      max_rows, draft_groups_);
}

ops::DraftPass BatchBuilder::checked_pass() const {
  return {.tokens = {},
          .positions = batch_.positions,
          .parameters = draft_parameters_.as_sampling_rows(),
          .slots = {},
          .context_lens = {}};
}

ops::CheckedDrafts BatchBuilder::checked_drafts() const {
  return {.tokens = batch_.tokens,
          .sampled = sampled_tokens_.device,
          .first_drafts = first_drafts_.device.rows(0, num_chain_rows_),
          .num_drafts = num_drafts_.device.rows(0, num_chain_rows_)};
}

ops::DraftPages BatchBuilder::draft_pages() const {
  return {.table = batch_.attention.page_table,
          .held_tokens = held_tokens_.device.rows(0, num_chain_rows_),
          .page_tokens = limits_.page_tokens};
}

tensor::Tensor BatchBuilder::drafts_of_pass(int64_t pass) const {
  const int64_t first = pass * limits_.max_sequences;
  return draft_tokens_.device.rows(first, first + num_chain_rows_);
}

}  // namespace slimexx::rollout
