// The inputs of a draft pass (speculative decoding), and the rule that makes them from the previous
// pass. Shared by the CPU and the device; compiles without CUDA.
#pragma once
#include <cstdint>

#include "slimexx/kernels/both_sides.h"
#include "slimexx/kernels/sampling_parameters.h"

namespace slimexx::kernels {

// All pointers are to the host, or all to the device. The next pass has one token per sequence: row
// r belongs to sequence r.
struct DraftRows {
  // Per row of the previous pass: its position, the draft token that it produced, and the
  // parameters of that sampling.
  const int32_t* positions = nullptr;
  const int32_t* guessed = nullptr;
  const SamplingParameters* parameters = nullptr;
  // Set if the previous pass is a batch that verified drafts. Per row of that batch: its token and
  // the token sampled from the row. Per sequence: the first row and the number of its drafts, which
  // are consecutive. Null: the previous pass has one row per sequence.
  const int32_t* tokens = nullptr;
  const int32_t* sampled = nullptr;
  const int32_t* first_drafts = nullptr;
  const int32_t* num_drafts = nullptr;
  // Per sequence: its pages, and the number of positions that they hold, at least 1.
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0, page_tokens = 0;
  const int32_t* held_tokens = nullptr;
  // Outputs for the next pass, [count] each. If the previous pass has one row per sequence,
  // positions and parameters may be updated in place. from_rows: the row of the previous pass that
  // each row continues.
  int32_t* next_tokens = nullptr;
  int32_t* next_positions = nullptr;
  int32_t* next_slots = nullptr;
  int32_t* next_context_lens = nullptr;
  int32_t* from_rows = nullptr;
  SamplingParameters* next_parameters = nullptr;
  int64_t count = 0;
};

// The row of the last accepted draft, or `row` if there is none. A draft is accepted if all drafts
// before it are accepted and the row before it sampled the draft's token.
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

// A row whose position has no page writes no key (slot -1) and sees one key; its result is not
// used.
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
