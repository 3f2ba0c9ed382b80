// How weights in one Layout become weights in another, made once from the two. Boxes of tensors on
// disk are what the layouts have in common: what a rank needs it takes from its own memory where it
// holds it, else from one of the ranks that do; every element that is needed moves once, and ranks
// that hold the same share the sending.
#pragma once
#include <optional>
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
  int64_t num_elements() const;
};
// Of one rank. A peer's lists are in the same order on both sides.
struct WeightPlan {
  std::vector<WeightMove> local;
  std::vector<std::vector<WeightMove>> sends, receives;  // by peer
  bool has_traffic = false;  // between any two ranks; the same on all of them
};
// Both layouts are of the same ranks. SLX_CHECKs that what `from` holds covers every tensor, and
// that two ranks hold the same box or none of the same elements.
WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank);

// What one hand-over moved, in bytes.
struct WeightTraffic {
  int64_t aliased = 0, copied = 0, sent = 0, received = 0;
};
// Bytes for and from each peer; a move begins at a multiple of kMoveAlignmentBytes.
inline constexpr int64_t kMoveAlignmentBytes = 16;
int64_t count_bytes(const std::vector<WeightMove>& moves, tensor::Device device);
// The local moves: nothing is done where both stores have the same memory.
void move_local_weights(const ops::Context& ctx, const WeightPlan& plan, const ParameterStore& from,
                        const ParameterStore& to, WeightTraffic& traffic);
// Into, and out of, `bytes` [count_bytes of the peer's moves] U8, in the receiver's type.
void pack_weights(const ops::Context& ctx, const std::vector<WeightMove>& sends,
                  const ParameterStore& from, const tensor::Tensor& bytes);
void unpack_weights(const ops::Context& ctx, const std::vector<WeightMove>& receives,
                    const ParameterStore& to, const tensor::Tensor& bytes);
// All of it: `ranks` are those of the layouts. (scratch) for what is sent and received. Collective,
// but where no rank sends anything, `ranks` is not used.
WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks);

}  // namespace slimexx::model
