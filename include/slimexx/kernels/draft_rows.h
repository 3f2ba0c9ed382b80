// The rows of a pass that guesses tokens of sequences (speculative decoding), and the rule that
// makes them from the pass before; free of CUDA, the same on the CPU and on the device.
#pragma once
#include <cstdint>

#include "slimexx/kernels/both_sides.h"
#include "slimexx/kernels/sampling_parameters.h"

namespace slimexx::kernels {

// Pointers of one memory. Row r is that of sequence r, one token each.
struct DraftRows {
  // The pass before: the position of each row, the token guessed behind the next one, and how it
  // was sampled.
  const int32_t* positions = nullptr;
  const int32_t* guessed = nullptr;
  const SamplingParameters* parameters = nullptr;
  // Where the pass before is a batch that checks drafts: its tokens, what it sampled, and where the
  // drafts of each sequence stand, one behind another. Null: it has one row a sequence.
  const int32_t* tokens = nullptr;
  const int32_t* sampled = nullptr;
  const int32_t* first_drafts = nullptr;
  const int32_t* num_drafts = nullptr;
  // Pages of each sequence, and how many positions have one; at least 1.
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0, page_tokens = 0;
  const int32_t* held_tokens = nullptr;
  // The next pass: [count] each. Positions and parameters may be those of the pass before, where
  // that has one row a sequence. `from_rows` are rows of the pass before.
  int32_t* next_tokens = nullptr;
  int32_t* next_positions = nullptr;
  int32_t* next_slots = nullptr;
  int32_t* next_context_lens = nullptr;
  int32_t* from_rows = nullptr;
  SamplingParameters* next_parameters = nullptr;
  int64_t count = 0;
};

// The row behind the last draft that was right: a draft is, if the row before it sampled it.
SLX_BOTH_SIDES int32_t last_accepted_row(const DraftRows& rows, int32_t row) {
  if (rows.num_drafts == nullptr) return row;
  const int32_t first = rows.first_drafts[row], count = rows.num_drafts[row];
  int32_t last = row;
  for (int32_t i = 0; i < count; ++i) {
    if (rows.tokens[first + i] != rows.sampled[last]) break;
    last = first + i;
  }
  return last;
}

// A row beyond its sequence's pages writes no key and sees one key, of which nothing is made.
SLX_BOTH_SIDES void advance_draft_row(const DraftRows& rows, int32_t row) {
  const int32_t from = last_accepted_row(rows, row);
  const int32_t position = rows.positions[from] + 1, held = rows.held_tokens[row];
  SamplingParameters parameters = rows.parameters[from];
  ++parameters.counter[0];
  const int32_t guessed = rows.guessed[from];
  const bool has_page = position < held;
  const int32_t* pages = rows.page_table + row * rows.page_table_stride;
  const auto page_tokens = static_cast<int32_t>(rows.page_tokens);
  rows.from_rows[row] = from;
  rows.next_tokens[row] = guessed < 0 ? 0 : guessed;
  rows.next_positions[row] = has_page ? position : held - 1;
  rows.next_slots[row] =
      has_page ? pages[position / page_tokens] * page_tokens + position % page_tokens : -1;
  rows.next_context_lens[row] = has_page ? position : 0;
  rows.next_parameters[row] = parameters;
}

}  // namespace slimexx::kernels
