#include "rollout/step/batch_drafts.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {

void cut_groups(const StagedArray& rows, const SampledRows& sampled, int64_t max_rows,
                std::vector<SamplingGroup>& groups) {
  groups.clear();
  for (int64_t begin = 0; begin < sampled.num_rows; begin += max_rows) {
    const int64_t end = std::min(sampled.num_rows, begin + max_rows);
    const int64_t token = sampled.first_token + begin;
    groups.push_back({.rows = rows.device.rows(begin, end),
                      .parameters = sampled.parameters.rows(begin, end),
                      .tokens = sampled.tokens.device.rows(token, token + end - begin),
                      .log_probs = sampled.log_probs.device.rows(begin, end),
                      .host_tokens = sampled.tokens.i32() + token,
                      .host_log_probs = sampled.log_probs.f32() + begin});
  }
}

// Tokens sampled by the previous step are not known here: use 0, which affects only the drafts.
void stage_next_tokens(const DraftArrays& arrays, const Chunk& chunk, int64_t first_row) {
  const std::vector<TokenId>& tokens = chunk.sequence->tokens;
  for (int64_t i = 0; i < chunk.count; ++i) {
    const auto next = static_cast<size_t>(chunk.begin + i + 1);
    arrays.next_tokens.i32()[first_row + i] = next < tokens.size() ? std::max(tokens[next], 0) : 0;
  }
}

void stage_draft_sample(const DraftArrays& arrays, const ops::SamplingRow& parameters, int64_t row,
                        int32_t batch_row) {
  reinterpret_cast<ops::SamplingRow*>(arrays.parameters.host)[row] = parameters;
  arrays.next_tokens.i32()[batch_row] = ~static_cast<int32_t>(row);
}

void pad_draft_row(const DraftArrays& arrays, int64_t row) {
  arrays.next_tokens.i32()[row] = 0;
  reinterpret_cast<ops::SamplingRow*>(arrays.parameters.host)[row] = ops::SamplingRow{.greedy = 1};
}

// Draft chunks come after all others, in the same order of sequences. Rows without a sequence of
// their own have no query.
void DraftRows::stage(std::span<const Chunk> chunks, const Step& step) {
  step_ = step;
  if (limits_.num_mtp_drafts < 2) return;
  const DraftArrays& arrays = memory_.drafts();
  const int64_t num_rows = step.num_sequences;
  guesses_further_ = step.decodes && step.makes_drafts;
  const int64_t own = guesses_further_ ? std::ranges::count(chunks, 0, &Chunk::draft) : 0;
  // On the CPU every row has a query.
  const bool is_cpu = memory_.is_cpu();
  num_chain_rows_ = is_cpu ? own : guesses_further_ ? num_rows : std::min<int64_t>(num_rows, 1);
  std::fill_n(arrays.first_drafts.i32(), num_chain_rows_, 0);
  std::fill_n(arrays.num_drafts.i32(), num_chain_rows_, 0);
  std::fill_n(arrays.held_tokens.i32(), num_chain_rows_, 1);
  for (int64_t b = 0; b <= num_chain_rows_; ++b)
    arrays.chain_cu_seqlens.i32()[b] = static_cast<int32_t>(std::min(b, own));
  if (!guesses_further_) return;
  for (int64_t b = 0; b < own; ++b) {
    const Sequence& sequence = *chunks[static_cast<size_t>(b)].sequence;
    arrays.held_tokens.i32()[b] = static_cast<int32_t>(
        std::min(std::ssize(sequence.pages) * limits_.page_tokens, sequence.max_tokens));
  }
  int64_t owner = 0;
  for (int64_t b = own; b < std::ssize(chunks); ++b) {
    const Chunk& draft = chunks[static_cast<size_t>(b)];
    while (owner < own && chunks[static_cast<size_t>(owner)].sequence != draft.sequence) ++owner;
    SLX_CHECK_LT(owner, own);
    if (draft.draft == 1) arrays.first_drafts.i32()[owner] = static_cast<int32_t>(b);
    ++arrays.num_drafts.i32()[owner];
  }
}

int64_t DraftRows::num_passes() const {
  if (guesses_further_) return limits_.num_mtp_drafts;
  return step_.makes_drafts ? 1 : 0;
}

const std::vector<SamplingGroup>& DraftRows::group_drafts(int64_t max_rows) {
  const DraftArrays& arrays = memory_.drafts();
  cut_groups(memory_.batch().rows,
             {arrays.parameters.as_sampling_rows(), arrays.tokens, arrays.log_probs,
              step_.makes_drafts ? step_.num_sampled_rows : 0},
             max_rows, groups_);
  return groups_;
}

// The batch's row numbers are also used as rows of the further passes (the chain).
const std::vector<SamplingGroup>& DraftRows::group_chain(int64_t max_rows, int64_t pass,
                                                         tensor::Tensor parameters) {
  const DraftArrays& arrays = memory_.drafts();
  cut_groups(
      memory_.batch().rows,
      {parameters, arrays.tokens, arrays.log_probs, num_chain_rows_, pass * limits_.max_sequences},
      max_rows, groups_);
  return groups_;
}

tensor::Tensor DraftRows::chain_cu_seqlens() const {
  return memory_.drafts().chain_cu_seqlens.device.rows(0, num_chain_rows_ + 1);
}

ops::DraftPass DraftRows::checked_pass() const {
  return {.tokens = {},
          .positions = batch_.positions,
          .parameters = memory_.drafts().parameters.as_sampling_rows(),
          .slots = {},
          .context_lens = {}};
}

ops::CheckedDrafts DraftRows::checked_drafts() const {
  return {.tokens = batch_.tokens,
          .sampled = sampled_now(),
          .first_drafts = memory_.drafts().first_drafts.device.rows(0, num_chain_rows_),
          .num_drafts = memory_.drafts().num_drafts.device.rows(0, num_chain_rows_)};
}

ops::DraftPages DraftRows::draft_pages() const {
  return {.table = batch_.attention.page_table,
          .held_tokens = memory_.drafts().held_tokens.device.rows(0, num_chain_rows_),
          .page_tokens = limits_.page_tokens};
}

tensor::Tensor DraftRows::drafts_of_pass(int64_t pass) const {
  const int64_t first = pass * limits_.max_sequences;
  return memory_.drafts().tokens.device.rows(first, first + num_chain_rows_);
}

tensor::Tensor DraftRows::next_tokens() const {
  return memory_.drafts().next_tokens.device.rows(0, batch_.tokens.dim(0));
}

}  // namespace slimexx::rollout
