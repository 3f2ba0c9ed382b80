#include "slimexx/data/order.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "data/python_random.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"

namespace slimexx::data {

std::vector<int64_t> python_shuffle(int64_t n, int64_t seed) {
  std::vector<int64_t> permutation(static_cast<size_t>(n));
  std::iota(permutation.begin(), permutation.end(), 0);
  PythonRandom random(seed);
  for (size_t i = permutation.size(); i-- > 1;) {
    std::swap(permutation[i], permutation[random.next_below(i + 1)]);
  }
  return permutation;
}

EpochOrder::EpochOrder(int64_t num_rows, bool shuffle, int64_t seed, std::string content_hash) {
  SLX_CHECK_GT(num_rows, 0);
  cursor_.shuffle = shuffle;
  cursor_.seed = seed;
  cursor_.num_rows = num_rows;
  cursor_.content_hash = std::move(content_hash);
  arrange_epoch();
}

void EpochOrder::arrange_epoch() {
  if (cursor_.shuffle) {
    // Unsigned, so that seed + epoch wraps instead of overflowing.
    const uint64_t seed =
        static_cast<uint64_t>(cursor_.seed) + static_cast<uint64_t>(cursor_.epoch);
    permutation_ = python_shuffle(cursor_.num_rows, static_cast<int64_t>(seed));
  } else if (permutation_.empty()) {
    permutation_.resize(static_cast<size_t>(cursor_.num_rows));
    std::iota(permutation_.begin(), permutation_.end(), 0);
  }
}

std::vector<int64_t> EpochOrder::draw(int64_t k) {
  SLX_CHECK_GE(k, 0);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(k));
  for (int64_t missing = k; missing > 0;) {
    if (cursor_.offset == cursor_.num_rows) {
      ++cursor_.epoch;
      cursor_.offset = 0;
      arrange_epoch();
    }
    const int64_t take = std::min(missing, cursor_.num_rows - cursor_.offset);
    const auto begin = permutation_.begin() + cursor_.offset;
    rows.insert(rows.end(), begin, begin + take);
    cursor_.offset += take;
    missing -= take;
  }
  return rows;
}

void EpochOrder::restore(const Cursor& cursor) {
  if (cursor.num_rows != cursor_.num_rows || cursor.content_hash != cursor_.content_hash) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("the data differs from that of the checkpoint: {} rows (hash {}) now, {} rows "
                    "(hash {}) then",
                    cursor_.num_rows, cursor_.content_hash, cursor.num_rows, cursor.content_hash),
        "restore the file, input_key, slice and length limit of that run, or start a new run from "
        "its weights");
  }
  if (cursor.shuffle != cursor_.shuffle || (cursor.shuffle && cursor.seed != cursor_.seed)) {
    throw Error(ErrorCode::kInput,
                fmt::format("the order of the data differs from that of the checkpoint: shuffle {} "
                            "and seed {} now, {} and {} then",
                            cursor_.shuffle, cursor_.seed, cursor.shuffle, cursor.seed),
                "restore data.rollout_shuffle and data.seed");
  }
  // Refuse positions whose row numbers would overflow (see num_drawn).
  if (cursor.epoch < 0 || cursor.epoch >= INT64_MAX / cursor.num_rows - 1 || cursor.offset < 0 ||
      cursor.offset > cursor.num_rows) {
    throw Error(ErrorCode::kInput,
                fmt::format("epoch {} and offset {} are not a position in {} rows", cursor.epoch,
                            cursor.offset, cursor.num_rows),
                "the checkpoint is damaged; resume from an earlier one");
  }
  const bool same_epoch = cursor.epoch == cursor_.epoch;
  cursor_.epoch = cursor.epoch;
  cursor_.offset = cursor.offset;
  if (!same_epoch) arrange_epoch();
}

}  // namespace slimexx::data
