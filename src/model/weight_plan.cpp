#include "slimexx/model/weight_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/tensor/strided_copy.h"

namespace slimexx::model {
namespace {

tensor::DType dtype_of(const WeightMove& move, tensor::Device device) {
  return move.dtype.value_or(tensor::compute_dtype(device));
}

int64_t bytes_of(const WeightMove& move, tensor::Device device) {
  return move.num_elements() * tensor::dtype_bytes(dtype_of(move, device));
}

int64_t aligned(int64_t bytes) {
  return (bytes + kMoveAlignmentBytes - 1) / kMoveAlignmentBytes * kMoveAlignmentBytes;
}

tensor::Tensor flat_weight(const ParameterStore& store, ParameterId id) {
  const ParameterInfo& info = store.infos()[static_cast<size_t>(id)];
  return store.group_of(info).weights.rows(info.offset, info.offset + info.num_elements());
}

// The elements of a box from one flat tensor to another, of any types.
void copy_box(const ops::Context& ctx, const std::vector<int64_t>& extents,
              const tensor::Tensor& from, int64_t from_begin,
              const std::vector<int64_t>& from_strides, const tensor::Tensor& to, int64_t to_begin,
              const std::vector<int64_t>& to_strides) {
  if (ctx.planning()) return;
  const int64_t width = tensor::dtype_bytes(from.dtype());
  for (const tensor::BoxRows& list : tensor::list_rows(extents, from_strides, to_strides)) {
    const auto part = [&](const tensor::Tensor& flat, int64_t begin) {
      return flat.rows(begin, begin + list.first.size);
    };
    const int64_t source = from_begin + list.first.from, target = to_begin + list.first.to;
    if (list.rows > 1 && from.dtype() == to.dtype()) {
      tensor::copy_row_bytes(ctx.stream, {part(to, target).raw(), list.to_stride * width},
                             {part(from, source).raw(), list.from_stride * width},
                             list.first.size * width, list.rows);
      continue;
    }
    for (int64_t row = 0; row < list.rows; ++row)
      ops::copy(ctx, part(to, target + row * list.to_stride),
                part(from, source + row * list.from_stride));
  }
}

// Rows of a piece of at most `most` elements.
int64_t rows_at_once(int64_t rows, int64_t elements, int64_t most) {
  return elements <= most ? rows : std::max<int64_t>(1, most / (elements / rows));
}

std::vector<WeightMove> cut_rows(const WeightMove& move, int64_t at_once) {
  if (move.extents.empty() || at_once >= move.extents[0]) return {move};
  const int64_t rows = move.extents[0];
  std::vector<WeightMove> pieces;
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    WeightMove piece = move;
    piece.extents[0] = std::min(at_once, rows - begin);
    piece.from.begin += begin * move.from.strides[0];
    piece.to.begin += begin * move.to.strides[0];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// What two ranks send each other, in rounds of so many elements: a piece is of the round that it
// begins in. All ranks count all pairs alike, so they agree on rounds without asking.
struct PairRounds {
  int64_t of_round = 1;
  int64_t moved = 0;
  int64_t next(int64_t elements) {
    const int64_t round = moved / of_round;
    moved += elements;
    return round;
  }
  // The round of the last piece of a box.
  int64_t skip(int64_t rows, int64_t elements) {
    const int64_t at_once = rows_at_once(rows, elements, of_round);
    const int64_t last_piece = (rows - 1) / at_once * at_once * (elements / rows);
    const int64_t round = (moved + last_piece) / of_round;
    moved += elements;
    return round;
  }
};

struct NeededBox {
  const ParameterInfo* info;
  PartBox box;
};
struct Overlap {
  size_t needed;
  const HeldBox* held;
  int64_t rows, elements;  // rows: 1 of what has no dimensions
};
struct NeededBoxes {
  std::vector<NeededBox> boxes;
  std::vector<Overlap> overlaps;  // in the order of boxes, then of who holds
};

NeededBoxes find_needed_boxes(const std::vector<ParameterInfo>& list, const HeldTensors& tensors) {
  NeededBoxes needed;
  for (const ParameterInfo& info : list) {
    for (PartBox& box : list_boxes(info)) {
      const auto tensor = tensors.find(info.parts[box.part].name);
      SLX_CHECK(tensor != tensors.end(), "nobody holds {}", info.parts[box.part].name);
      for (const HeldBox& held : tensor->second.boxes) {
        if (!tensor::overlap(held.box, box.on_disk)) continue;
        const tensor::Box both = tensor::intersect(held.box, box.on_disk);
        needed.overlaps.push_back({needed.boxes.size(), &held,
                                   both.begin.empty() ? 1 : both.end[0] - both.begin[0],
                                   tensor::count_elements(both)});
      }
      needed.boxes.push_back({&info, std::move(box)});
    }
  }
  return needed;
}

// Of a peer's moves, which ascend by round.
std::span<const WeightMove> moves_of_round(const std::vector<WeightMove>& moves, int64_t round) {
  const auto first = std::ranges::lower_bound(moves, round, {}, &WeightMove::round);
  return {first, std::ranges::upper_bound(moves, round, {}, &WeightMove::round)};
}

// Calls visit(move, its elements in `bytes`, one behind another).
template <class Visit>
void for_each_move(std::span<const WeightMove> moves, const tensor::Tensor& bytes,
                   const Visit& visit) {
  char* at = static_cast<char*>(bytes.raw());
  for (const WeightMove& move : moves) {
    visit(move, tensor::Tensor(at, dtype_of(move, bytes.device()), bytes.device(),
                               {move.num_elements()}));
    if (at != nullptr) at += aligned(bytes_of(move, bytes.device()));  // null in planning
  }
}

}  // namespace

int64_t WeightMove::num_elements() const {
  int64_t n = 1;
  for (const int64_t extent : extents) n *= extent;
  return n;
}

std::vector<WeightPlan> make_weight_plans(const Layout& from, const Layout& to,
                                          std::span<const int> ranks, int64_t round_elements) {
  const size_t num_ranks = from.ranks.size();
  const int64_t of_pair = std::max<int64_t>(1, round_elements / static_cast<int64_t>(num_ranks));
  std::vector<PairRounds> pairs(num_ranks * num_ranks, {of_pair});  // [receiver * ranks + sender]
  SLX_CHECK_EQ(to.ranks.size(), num_ranks);
  const HeldTensors tensors = list_held_tensors(from);
  check_covered(tensors);
  std::vector<WeightPlan> plans(ranks.size());
  std::vector<WeightPlan*> plan_of(num_ranks, nullptr);
  for (size_t i = 0; i < ranks.size(); ++i) {
    plans[i].sends.resize(num_ranks);
    plans[i].receives.resize(num_ranks);
    plan_of.at(static_cast<size_t>(ranks[i])) = &plans[i];
  }
  int64_t num_rounds = 0;
  std::vector<int64_t> sent(num_ranks, 0);  // elements, by rank
  const auto add_move = [&](int receiving, const NeededBox& needed, const Overlap& overlap) {
    const HeldBox& held = *overlap.held;
    auto source = std::ranges::find(held.holders, receiving, &Holder::rank);
    if (source == held.holders.end()) {
      source = std::ranges::min_element(held.holders, {}, [&](const Holder& holder) {
        return sent[static_cast<size_t>(holder.rank)];
      });
      sent[static_cast<size_t>(source->rank)] += overlap.elements;
    }
    const auto receiver = static_cast<size_t>(receiving);
    const auto sender = static_cast<size_t>(source->rank);
    const bool is_local = sender == receiver;
    WeightPlan *from_plan = plan_of[sender], *to_plan = plan_of[receiver];
    if (is_local && to_plan == nullptr) return;
    PairRounds& pair = pairs[receiver * num_ranks + sender];
    if (from_plan == nullptr && to_plan == nullptr) {
      num_rounds = std::max(num_rounds, pair.skip(overlap.rows, overlap.elements) + 1);
      return;
    }
    const PartBox& box = needed.box;
    const tensor::Box both = tensor::intersect(held.box, box.on_disk);
    WeightMove move{
        .extents = tensor::extents_of(both),
        .from = place_inside(source->place, held.box, both),
        .to = place_inside({needed.info->id, box.in_parameter, box.strides}, box.on_disk, both),
        .dtype = needed.info->dtype};
    if (is_local) return to_plan->local.push_back(std::move(move));
    const int64_t at_once = rows_at_once(overlap.rows, overlap.elements, of_pair);
    for (WeightMove& piece : cut_rows(move, at_once)) {
      piece.round = pair.next(piece.num_elements());
      num_rounds = std::max(num_rounds, piece.round + 1);
      if (from_plan != nullptr) from_plan->sends[receiver].push_back(piece);
      if (to_plan != nullptr) to_plan->receives[sender].push_back(std::move(piece));
    }
  };
  // Replicas share their list, and so what is found for it.
  std::map<const std::vector<ParameterInfo>*, NeededBoxes> needed_by;
  for (int receiver = 0; receiver < static_cast<int>(num_ranks); ++receiver) {
    const auto& list = to.ranks[static_cast<size_t>(receiver)];
    auto found = needed_by.find(list.get());
    if (found == needed_by.end())
      found = needed_by.emplace(list.get(), find_needed_boxes(*list, tensors)).first;
    for (const Overlap& overlap : found->second.overlaps)
      add_move(receiver, found->second.boxes[overlap.needed], overlap);
  }
  for (WeightPlan& plan : plans) plan.num_rounds = num_rounds;
  return plans;
}

WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank,
                            int64_t round_elements) {
  return make_weight_plans(from, to, {{rank}}, round_elements)[0];
}

int64_t count_bytes(std::span<const WeightMove> moves, tensor::Device device) {
  int64_t bytes = 0;
  for (const WeightMove& move : moves) bytes += aligned(bytes_of(move, device));
  return bytes;
}

void move_local_weights(const ops::Context& ctx, const WeightPlan& plan, const ParameterStore& from,
                        const ParameterStore& to, WeightTraffic& traffic) {
  for (const WeightMove& move : plan.local) {
    const tensor::Tensor source = flat_weight(from, move.from.parameter);
    const tensor::Tensor target = flat_weight(to, move.to.parameter);
    const bool is_alias = source.raw() == target.raw() && source.dtype() == target.dtype() &&
                          move.from.begin == move.to.begin && move.from.strides == move.to.strides;
    (is_alias ? traffic.aliased : traffic.copied) += bytes_of(move, ctx.device());
    if (!is_alias)
      copy_box(ctx, move.extents, source, move.from.begin, move.from.strides, target, move.to.begin,
               move.to.strides);
  }
}

void pack_weights(const ops::Context& ctx, std::span<const WeightMove> sends,
                  const ParameterStore& from, const tensor::Tensor& bytes) {
  for_each_move(sends, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, flat_weight(from, move.from.parameter), move.from.begin,
             move.from.strides, packed, 0, tensor::strides_of(move.extents));
  });
}

void unpack_weights(const ops::Context& ctx, std::span<const WeightMove> receives,
                    const ParameterStore& to, const tensor::Tensor& bytes) {
  for_each_move(receives, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, packed, 0, tensor::strides_of(move.extents),
             flat_weight(to, move.to.parameter), move.to.begin, move.to.strides);
  });
}

namespace {

// What a round sends and receives, in memory that every second round has.
struct Round {
  std::vector<int64_t> send_bytes, receive_bytes;  // by peer
  int64_t sent = 0, received = 0;
  tensor::Tensor out, in;
};

std::vector<Round> list_rounds(const WeightPlan& plan, tensor::Device device) {
  std::vector<Round> rounds(static_cast<size_t>(plan.num_rounds));
  for (int64_t r = 0; r < plan.num_rounds; ++r) {
    Round& round = rounds[static_cast<size_t>(r)];
    for (const auto& moves : plan.sends) {
      round.send_bytes.push_back(count_bytes(moves_of_round(moves, r), device));
      round.sent += round.send_bytes.back();
    }
    for (const auto& moves : plan.receives) {
      round.receive_bytes.push_back(count_bytes(moves_of_round(moves, r), device));
      round.received += round.receive_bytes.back();
    }
  }
  return rounds;
}

void allocate_rounds(tensor::Arena& arena, std::vector<Round>& rounds) {
  for (size_t slot = 0; slot < 2 && slot < rounds.size(); ++slot) {
    int64_t sent = 0, received = 0;
    for (size_t r = slot; r < rounds.size(); r += 2) {
      sent = std::max(sent, rounds[r].sent);
      received = std::max(received, rounds[r].received);
    }
    const tensor::Tensor out = arena.allocate(tensor::DType::kU8, {sent});
    const tensor::Tensor in = arena.allocate(tensor::DType::kU8, {received});
    for (size_t r = slot; r < rounds.size(); r += 2) {
      rounds[r].out = out.rows(0, rounds[r].sent);
      rounds[r].in = in.rows(0, rounds[r].received);
    }
  }
}

// Calls visit(moves, their bytes) by peer.
template <class Visit>
void for_each_peer(const std::vector<std::vector<WeightMove>>& moves, int64_t round,
                   const std::vector<int64_t>& bytes, const tensor::Tensor& all,
                   const Visit& visit) {
  int64_t at = 0;
  for (size_t peer = 0; peer < moves.size(); ++peer) {
    visit(moves_of_round(moves[peer], round), all.rows(at, at + bytes[peer]));
    at += bytes[peer];
  }
}

}  // namespace

// While a round is between ranks, the next one is packed and the one before unpacked; during the
// first, what a rank has itself is copied.
WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks) {
  WeightTraffic traffic;
  if (plan.num_rounds == 0) move_local_weights(ctx, plan, from, to, traffic);
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Stream exchange =
      ctx.planning() ? ctx.stream : tensor::side_stream(ctx.stream.device);
  std::vector<Round> rounds = list_rounds(plan, ctx.device());
  allocate_rounds(ctx.arena, rounds);
  tensor::Event packed, moved[2];
  const auto unpack = [&](int64_t r) {
    const Round& round = rounds[static_cast<size_t>(r)];
    moved[r % 2].wait_on(ctx.stream);
    for_each_peer(
        plan.receives, r, round.receive_bytes, round.in,
        [&](auto moves, const tensor::Tensor& bytes) { unpack_weights(ctx, moves, to, bytes); });
  };
  for (int64_t r = 0; r < plan.num_rounds; ++r) {
    const Round& round = rounds[static_cast<size_t>(r)];
    for_each_peer(
        plan.sends, r, round.send_bytes, round.out,
        [&](auto moves, const tensor::Tensor& bytes) { pack_weights(ctx, moves, from, bytes); });
    packed.record(ctx.stream);
    packed.wait_on(exchange);
    ranks.all_to_all(exchange, round.in, round.out, round.send_bytes, round.receive_bytes);
    moved[r % 2].record(exchange);
    traffic.sent += round.sent;
    traffic.received += round.received;
    if (r == 0) {
      move_local_weights(ctx, plan, from, to, traffic);
    } else {
      unpack(r - 1);
    }
  }
  if (plan.num_rounds > 0) unpack(plan.num_rounds - 1);
  return traffic;
}

}  // namespace slimexx::model
