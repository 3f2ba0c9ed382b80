// What a run's checkpoints hold of a group of parameters, and where a rank's share of it lies.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slimexx/train/optimizer.h"

namespace slimexx::rl {

// Of a trained group the optimizer's state, in the types it is kept in.
using Section = std::pair<const char*, tensor::Tensor train::OwnedGroup::*>;
inline constexpr Section kSections[] = {{"master", &train::OwnedGroup::master},
                                        {"exp_avg", &train::OwnedGroup::exp_avg},
                                        {"exp_avg_sq", &train::OwnedGroup::exp_avg_sq}};
// Of a frozen one the weights, as they are stored.
inline constexpr const char* kFrozenSection = "weights";
// And of all parameters the weights of a reference that followed the policy.
inline constexpr const char* kReferenceSection = "reference";

// Elements that are converted at a time, and by one thread of the pool.
inline constexpr int64_t kConvertedAtOnce = int64_t{1} << 24, kConvertedByThread = 65536;

// Elements of a parameter that a rank owns: [begin, end) of it, from element `at` of the rank's
// arrays on.
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
