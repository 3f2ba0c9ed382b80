// How weights in one Layout become weights in another, made once from the two. Boxes of tensors on
// disk are what the layouts have in common: what a rank needs it takes from its own memory where it
// holds it, else from one of the ranks that do; every element that is needed moves once, and ranks
// that hold the same share the sending. It moves in rounds, so that what is under way takes little
// memory.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/model/held_tensors.h"
#include "slimexx/model/layout.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

struct WeightMove {
  std::vector<int64_t> extents;
  BoxPlace from, to;                   // in the sender's store and in the receiver's
  std::optional<tensor::DType> dtype;  // of the receiver's parameter, as ParameterInfo::dtype
  int64_t round = 0;
  int64_t num_elements() const;
};
// Of one rank. A peer's lists are in the same order on both sides, by ascending round.
struct WeightPlan {
  std::vector<WeightMove> local;
  std::vector<std::vector<WeightMove>> sends, receives;  // by peer
  int64_t num_rounds = 0;  // 0: no rank sends anything. The same on all of them
};
// What the rank with the most to send, or to receive, moves in a round: about as much. Others, and
// every pair of ranks, move their share of what they have. Two rounds are under way at a time.
inline constexpr int64_t kRoundElements = int64_t{1} << 27;
// Of each of `ranks`, which ascend. Both layouts are of the same ranks. SLX_CHECKs that what `from`
// holds covers every tensor, and that two ranks hold the same box or none of the same elements.
std::vector<WeightPlan> make_weight_plans(const Layout& from, const Layout& to,
                                          std::span<const int> ranks,
                                          int64_t round_elements = kRoundElements);
WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank,
                            int64_t round_elements = kRoundElements);

// What one hand-over moved, in bytes.
struct WeightTraffic {
  int64_t aliased = 0, copied = 0, sent = 0, received = 0;
};
// Bytes for and from each peer; a move begins at a multiple of kMoveAlignmentBytes.
inline constexpr int64_t kMoveAlignmentBytes = 16;
int64_t count_bytes(std::span<const WeightMove> moves, tensor::Device device);
// The local moves: nothing is done where both stores have the same memory.
void move_local_weights(const ops::Context& ctx, const WeightPlan& plan, const ParameterStore& from,
                        const ParameterStore& to, WeightTraffic& traffic);
// Into, and out of, `bytes` [count_bytes of the peer's moves] U8, in the receiver's type.
void pack_weights(const ops::Context& ctx, std::span<const WeightMove> sends,
                  const ParameterStore& from, const tensor::Tensor& bytes);
void unpack_weights(const ops::Context& ctx, std::span<const WeightMove> receives,
                    const ParameterStore& to, const tensor::Tensor& bytes);
// All of it: `ranks` are those of the layouts. (scratch) for what two rounds send and receive.
// Collective, but where no rank sends anything, `ranks` is not used. Else the stores have no memory
// in common.
WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks);

}  // namespace slimexx::model
