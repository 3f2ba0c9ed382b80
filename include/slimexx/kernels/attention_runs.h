// How attention's forward divides a batch among its kernels. A row's bits do not depend on it, only
// times and the memory of partial results do.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slimexx::kernels {

// Query rows of a sequence for one kv head: queries x query heads of the kv head.
inline constexpr int64_t kFewAttentionRows = 16;
inline constexpr int64_t kSplitAttentionRows = 64;

// Neighbouring sequences, with bounds over them that the host knows.
struct AttentionRun {
  int64_t sequences = 0;
  int64_t max_query_len = 0, max_key_len = 0;  // key_len: context and queries
};

// A batch in the order of its sequences; a kernel for each run that is not empty.
struct AttentionRuns {
  AttentionRun few;    // at most kFewAttentionRows rows: decode
  AttentionRun split;  // a thread block walks one segment of keys for kSplitAttentionRows rows
  AttentionRun whole;  // a thread block walks all keys for 128 queries of a head
  // Tokens of `few` and `split` together, or more. Each has a row of partial results a segment.
  int64_t split_tokens = 0;
  int64_t num_sequences() const { return few.sequences + split.sequences + whole.sequences; }
};

// The run of a sequence by its length: 0 few, 1 split, 2 whole. `group`: query heads of a kv head.
inline int choose_run(int64_t query_len, int64_t group) {
  const int64_t rows = query_len * group;
  return rows <= kFewAttentionRows ? 0 : rows <= kSplitAttentionRows ? 1 : 2;
}

// By the lengths of all sequences: cu_seqlens [sequences + 1], context_lens [sequences] (empty: all
// 0). Short sequences at the front are split as long as their tokens do not exceed
// max_split_tokens; from the first sequence that cannot be split on, all are walked whole. So sort
// a batch by query lengths, ascending.
inline AttentionRuns choose_attention_runs(std::span<const int32_t> cu_seqlens,
                                           std::span<const int32_t> context_lens, int64_t group,
                                           int64_t max_split_tokens) {
  AttentionRun by_choice[3];
  int64_t split_tokens = 0;
  int choice = 0;
  for (size_t b = 0; b + 1 < cu_seqlens.size(); ++b) {
    const int64_t queries = cu_seqlens[b + 1] - cu_seqlens[b];
    const bool may_split = cu_seqlens[b + 1] <= max_split_tokens;
    choice = std::max(choice, may_split ? choose_run(queries, group) : 2);
    AttentionRun& run = by_choice[choice];
    ++run.sequences;
    run.max_query_len = std::max(run.max_query_len, queries);
    const int64_t context = context_lens.empty() ? 0 : context_lens[b];
    if (queries > 0) run.max_key_len = std::max(run.max_key_len, context + queries);
    if (choice < 2) split_tokens = cu_seqlens[b + 1];
  }
  return {by_choice[0], by_choice[1], by_choice[2], split_tokens};
}

// By bounds alone: one run. Its workspace suffices for any batch of so many tokens and sequences
// within these bounds, divided with this max_split_tokens.
inline AttentionRuns choose_attention_runs(const AttentionRun& all, int64_t num_tokens,
                                           int64_t group, int64_t max_split_tokens) {
  AttentionRun by_choice[3];
  by_choice[choose_run(all.max_query_len, group)] = all;
  return {by_choice[0], by_choice[1], by_choice[2], std::min(num_tokens, max_split_tokens)};
}

}  // namespace slimexx::kernels
