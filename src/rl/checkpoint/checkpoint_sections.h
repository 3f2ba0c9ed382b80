// The sections of a checkpoint for a group of parameters, and the position of a rank's share.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slimexx/train/optimizer.h"

namespace slimexx::rl {

// Trained groups: the optimizer's state, in the types it is kept in.
using Section = std::pair<const char*, tensor::Tensor train::OwnedGroup::*>;
inline constexpr Section kSections[] = {{"master", &train::OwnedGroup::master},
                                        {"exp_avg", &train::OwnedGroup::exp_avg},
                                        {"exp_avg_sq", &train::OwnedGroup::exp_avg_sq}};
// Frozen groups: the weights, as they are stored.
inline constexpr const char* kFrozenSection = "weights";
// All parameters: the weights of a reference that followed the policy.
inline constexpr const char* kReferenceSection = "reference";

// Elements converted at a time, in total and per thread of the pool.
inline constexpr int64_t kConvertedAtOnce = int64_t{1} << 24, kConvertedByThread = 65536;

// Elements [begin, end) of a parameter that a rank owns; they start at element `at` of the rank's
// arrays.
struct Overlap {
  int64_t begin, end, at;
};
inline std::vector<Overlap> list_overlaps(const model::ParameterInfo& info,
                                          std::span<const train::OwnedPiece> pieces) {
  std::vector<Overlap> overlaps;
  for (const auto& piece : pieces) {
    const int64_t begin = std::max(info.offset, piece.range.begin) - info.offset;
    const int64_t end = std::min(info.offset + info.num_elements(), piece.range.end) - info.offset;
    if (begin < end)
      overlaps.push_back({begin, end, piece.begin + info.offset + begin - piece.range.begin});
  }
  return overlaps;
}

}  // namespace slimexx::rl
