// Divides the sequences of a batch among the kernels of attention's forward. The division changes
// the time and the memory for partial results, but no bit of the output.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slimexx::kernels {

// Upper bounds on the rows of a sequence in the runs `few` and `split`. Rows are counted per kv
// head: queries x query heads per kv head.
inline constexpr int64_t kFewAttentionRows = 16;
inline constexpr int64_t kSplitAttentionRows = 64;

// Neighbouring sequences of a batch, and upper bounds on their lengths, known on the host.
struct AttentionRun {
  int64_t sequences = 0;
  int64_t max_query_len = 0, max_key_len = 0;  // key_len: context + queries
};

// The runs of a batch, in the order of its sequences. Each run that is not empty has its own
// kernel.
struct AttentionRuns {
  AttentionRun few;    // at most kFewAttentionRows rows per sequence: decode
  AttentionRun split;  // a thread block computes kSplitAttentionRows rows for one segment of keys
  AttentionRun whole;  // a thread block computes 128 queries of a head, all their keys
  // Upper bound on the tokens of `few` and `split`. Each of these tokens has partial results for
  // every segment.
  int64_t split_tokens = 0;
  int64_t num_sequences() const { return few.sequences + split.sequences + whole.sequences; }
};

// The run of a sequence: 0 few, 1 split, 2 whole. `group`: query heads per kv head.
inline int choose_run(int64_t query_len, int64_t group) {
  const int64_t rows = query_len * group;
  return rows <= kFewAttentionRows ? 0 : rows <= kSplitAttentionRows ? 1 : 2;
}

// From the lengths of all sequences: cu_seqlens [sequences + 1], context_lens [sequences] (empty:
// all 0). A sequence never gets an earlier run than the sequence before it, and all are `whole`
// after the first max_split_tokens tokens. So sort a batch by query length, ascending.
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

// From bounds alone: all sequences are in one run. The workspace for this run is enough for every
// batch within the bounds `all` and num_tokens that is divided with the same max_split_tokens.
inline AttentionRuns choose_attention_runs(const AttentionRun& all, int64_t num_tokens,
                                           int64_t group, int64_t max_split_tokens) {
  AttentionRun by_choice[3];
  by_choice[choose_run(all.max_query_len, group)] = all;
  return {by_choice[0], by_choice[1], by_choice[2], std::min(num_tokens, max_split_tokens)};
}

}  // namespace slimexx::kernels
