// Gradient buckets ("parts"): the flat parameters of a group are cut into parts in the order in
// which backward finishes their gradients, and every part is sharded evenly over the ranks that sum
// it. So each part is one balanced reduce-scatter, and a rank owns one slice of every part. All
// ranks cut equally. The cut changes the bits of the gradient norm, by the order of its sum, and no
// other bits.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/parameters.h"

namespace slimexx::train {

// Parts and slices start at multiples of this many elements, so that bf16 vectors stay whole.
inline constexpr int64_t kSliceElements = 16;

// Minimum size of a part, because many small exchanges cost more than they hide: 256 MiB of f32, or
// a sixteenth of a small group.
inline int64_t choose_min_part_elements(int64_t num_elements) {
  return std::min(int64_t{1} << 26, num_elements / 16);
}

struct GradientPart {
  dist::Range range;       // of the group's flat parameters
  int64_t last_stage = 0;  // stage of backward after which the part is final
  size_t group = 0;        // index into ParameterStore::groups()
};

// Stages of backward: 0 is the head with the MTP layers, 1 the last layer, num_layers the first,
// num_layers + 1 the embedding (a tied one also gets gradients from the head and is final last).
// The parts of a trainable group cover its parameters from the end to the start; all except the
// last hold at least `min_elements` (0: choose_min_part_elements of the group). Parts of all groups
// are listed in the order in which they become final.
std::vector<GradientPart> list_gradient_parts(const model::ParameterStore& store,
                                              const model::ModelSpec& spec, int64_t min_elements);

// Rank r's slice of part p is [p * num_ranks + r]; it may be empty. Parts are multiples of
// kSliceElements.
std::vector<dist::Range> split_parts(std::span<const dist::Range> parts, int num_ranks);

// A range of the flat parameters, and its position in the owner's arrays.
struct OwnedPiece {
  dist::Range range;
  int64_t begin = 0;
};

// The pieces that `rank` owns, ascending and consecutive in its arrays. Adjacent slices are one
// piece, so a single rank has one piece.
std::vector<OwnedPiece> list_owned_pieces(std::span<const dist::Range> slices, int rank,
                                          int num_ranks);
int64_t count_elements(std::span<const OwnedPiece> pieces);

}  // namespace slimexx::train
