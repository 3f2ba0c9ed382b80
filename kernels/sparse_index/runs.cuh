// Finds the sequences that a run of a batch's rows belongs to (IndexRows).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/sizes.h"
#include "slimexx/kernels/sparse_index.h"

namespace slimexx::kernels::sparse_index {

struct Rows {
  const int32_t* cu_seqlens;
  const int32_t* context_lens;
  int sequences, first_row, rows;
};

inline Rows describe_rows(const IndexRows& rows) {
  return {rows.cu_seqlens, rows.context_lens, static_cast<int>(rows.sequences),
          static_cast<int>(rows.first_row), static_cast<int>(rows.rows)};
}

inline bool has_served_rows(const IndexRows& rows) {
  return rows.cu_seqlens != nullptr && rows.sequences > 0 && rows.sequences < INT32_MAX &&
         rows.first_row >= 0 && rows.rows >= 0 && rows.first_row + rows.rows < INT32_MAX &&
         rows.max_query_len >= 0 && rows.max_key_len >= 0 && rows.max_key_len <= INT32_MAX / 2;
}

// The last sequence that starts at or before a row of the batch. Called by all lanes of a warp.
__device__ __forceinline__ int find_sequence(const Rows& rows, int row) {
  int low = 0, high = rows.sequences;
  while (high - low > 1) {
    const int step = divide_up(high - low, 32);
    const int probe = low + static_cast<int>(threadIdx.x % 32) * step;
    const bool starts = probe < high && rows.cu_seqlens[probe] <= row;
    const uint32_t lanes = __ballot_sync(0xffffffffu, starts);  // bit 0 is always set
    low += (31 - __clz(static_cast<int>(lanes | 1))) * step;
    high = min(low + step, high);
  }
  return low;
}

// The rows of a sequence that are in the run.
struct SequenceRun {
  int row;          // the first row, counted within the run
  int queries;      // number of rows; 0: none is in the run
  int position;     // position of the first row in its sequence
  int first_token;  // first token of the sequence in the batch
  __device__ __forceinline__ int keys() const { return position + queries; }
};

__device__ __forceinline__ SequenceRun read_run(const Rows& rows, int sequence) {
  const int first = rows.cu_seqlens[sequence], end = rows.cu_seqlens[sequence + 1];
  const int context = rows.context_lens != nullptr ? rows.context_lens[sequence] : 0;
  const int begin = max(first, rows.first_row);
  return {begin - rows.first_row, max(0, min(end, rows.first_row + rows.rows) - begin),
          context + begin - first, first};
}

// Maps ascending work indices to sequences; all lanes of a warp call find() together. Lanes hold 32
// sequences at a time, one each, so that most calls read no memory.
struct RunCursor {
  int first_sequence, end_sequence;  // first held sequence; end of those with rows in the run
  int before = 0, total = 0;         // pieces before the held sequences, and pieces in them
  int through = 0;                   // pieces of the held sequences up to this lane's, inclusive
  SequenceRun own = {};              // this lane's sequence

  __device__ __forceinline__ explicit RunCursor(const Rows& rows)
      : first_sequence(0), end_sequence(rows.sequences) {
    if (rows.sequences > 32) {
      first_sequence = find_sequence(rows, rows.first_row);
      end_sequence = find_sequence(rows, rows.first_row + rows.rows - 1) + 1;
    }
    first_sequence -= 32;  // nothing held yet; find() starts by adding 32
  }
  // First sequence to look at. Valid only before the first find().
  __device__ __forceinline__ int begin_sequence() const { return first_sequence + 32; }

  // Returns the sequence that `index` falls in, or -1 past the end, and sets `piece` and `run`.
  // `count` gives the number of pieces of a SequenceRun.
  template <class Count>
  __device__ __forceinline__ int find(const Rows& rows, int index, const Count& count, int& piece,
                                      SequenceRun& run) {
    const int lane = threadIdx.x % 32;
    while (index - before >= total) {
      before += total;
      first_sequence += 32;
      if (first_sequence >= end_sequence) return -1;
      own = {};
      if (first_sequence + lane < end_sequence) own = read_run(rows, first_sequence + lane);
      through = count(own);
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, through, step);
        if (lane >= step) through += other;
      }
      total = __shfl_sync(0xffffffffu, through, 31);
    }
    const uint32_t holds = __ballot_sync(0xffffffffu, index - before < through);
    const int owner = __ffs(static_cast<int>(holds)) - 1;
    const auto of_owner = [&](int value) { return __shfl_sync(0xffffffffu, value, owner); };
    run = {of_owner(own.row), of_owner(own.queries), of_owner(own.position),
           of_owner(own.first_token)};
    piece = index - before - (of_owner(through) - count(run));
    return first_sequence + owner;
  }
};

}  // namespace slimexx::kernels::sparse_index
