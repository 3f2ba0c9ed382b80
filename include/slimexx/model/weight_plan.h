// Plans the resharding of weights from one Layout to another; made once per pair. Layouts are
// compared by boxes of tensors on disk. A rank takes an element from its own memory if possible,
// otherwise from exactly one rank that holds it; replicas share the sending. Data moves in rounds,
// so that transfers in flight need little memory.
#pragma once
#include <cstdint>
#include <memory>
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
  std::optional<tensor::DType> dtype;  // ParameterInfo::dtype of the receiver
  int64_t round = 0;
  int64_t num_elements() const;
};
// The plan for one rank. Sender and receiver list the moves of a pair in the same order, by
// ascending round.
struct WeightPlan {
  std::vector<WeightMove> local;
  std::vector<std::vector<WeightMove>> sends, receives;  // by peer
  int64_t num_rounds = 0;  // the same on all ranks; 0: no rank sends anything
};
// Approximate elements per round for the rank that sends or receives the most. Other ranks, and
// every pair of ranks, spread their elements over the same rounds. Two rounds are in flight at a
// time.
inline constexpr int64_t kRoundElements = int64_t{1} << 27;
class TransferList;
// The transfers from one layout to another, from which the plans of single ranks are made. Listing
// them takes time in proportion to the transfers of all ranks.
class WeightTransfers {
 public:
  // Both layouts have the same ranks. SLX_CHECKs that `from` covers every tensor, and that two
  // ranks hold either the same box or disjoint boxes.
  WeightTransfers(Layout from, Layout to);
  ~WeightTransfers();
  // One plan for each of `ranks`, which ascend.
  std::vector<WeightPlan> make_plans(std::span<const int> ranks,
                                     int64_t round_elements = kRoundElements) const;

 private:
  Layout from_, to_;  // the list points into them
  std::unique_ptr<const TransferList> list_;
};
// WeightTransfers(from, to).make_plans(ranks, round_elements).
std::vector<WeightPlan> make_weight_plans(const Layout& from, const Layout& to,
                                          std::span<const int> ranks,
                                          int64_t round_elements = kRoundElements);

// Bytes that one hand-over moved.
struct WeightTraffic {
  int64_t aliased = 0, copied = 0, sent = 0, received = 0;
};
// In the bytes for one peer each move begins at a multiple of kMoveAlignmentBytes.
inline constexpr int64_t kMoveAlignmentBytes = 16;
int64_t count_bytes(std::span<const WeightMove> moves, tensor::Device device);
// Runs the local moves; does nothing for elements whose memory both stores share.
void move_local_weights(const ops::Context& ctx, const WeightPlan& plan, const ParameterStore& from,
                        const ParameterStore& to, WeightTraffic& traffic);
// Pack into and unpack from `bytes` [count_bytes of the peer's moves] U8, in the receiver's type.
void pack_weights(const ops::Context& ctx, std::span<const WeightMove> sends,
                  const ParameterStore& from, const tensor::Tensor& bytes);
void unpack_weights(const ops::Context& ctx, std::span<const WeightMove> receives,
                    const ParameterStore& to, const tensor::Tensor& bytes);
// Runs the whole plan; `ranks` are the ranks of the layouts. Scratch: buffers of two rounds.
// Collective, and the stores must not share memory, unless no rank sends anything: then `ranks` is
// not used.
WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks);

}  // namespace slimexx::model
