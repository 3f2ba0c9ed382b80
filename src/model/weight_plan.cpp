#include "slimexx/model/weight_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {
namespace {

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

// A box of the receiver's, or a part of it, and who has it.
struct Transfer {
  int receiver = 0;
  const NeededBox* needed = nullptr;
  const Overlap* overlap = nullptr;
  const Holder* source = nullptr;
};

class TransferList {
 public:
  // Both layouts are borrowed.
  TransferList(const Layout& from, const Layout& to);
  TransferList(const TransferList&) = delete;  // transfers point into the rest
  TransferList& operator=(const TransferList&) = delete;
  const std::vector<Transfer>& transfers() const { return transfers_; }
  std::vector<int64_t> count_elements() const;  // [receiver * ranks + sender], not by itself

 private:
  const Holder& choose_source(int receiver, const Overlap& overlap);

  size_t num_ranks_;
  HeldTensors tensors_;
  // Replicas share their list, and so what is found for it.
  std::map<const std::vector<ParameterInfo>*, NeededBoxes> needed_by_;
  std::vector<int64_t> sent_;  // elements, by rank
  std::vector<Transfer> transfers_;
};

TransferList::TransferList(const Layout& from, const Layout& to)
    : num_ranks_(from.ranks.size()), tensors_(list_held_tensors(from)), sent_(num_ranks_, 0) {
  SLX_CHECK_EQ(to.ranks.size(), num_ranks_);
  check_covered(tensors_);
  for (int receiver = 0; receiver < static_cast<int>(num_ranks_); ++receiver) {
    const auto& list = to.ranks[static_cast<size_t>(receiver)];
    auto found = needed_by_.find(list.get());
    if (found == needed_by_.end())
      found = needed_by_.emplace(list.get(), find_needed_boxes(*list, tensors_)).first;
    for (const Overlap& overlap : found->second.overlaps)
      transfers_.push_back({receiver, &found->second.boxes[overlap.needed], &overlap,
                            &choose_source(receiver, overlap)});
  }
}

// The receiver itself, or else the holder that has sent the least so far.
const Holder& TransferList::choose_source(int receiver, const Overlap& overlap) {
  const std::vector<Holder>& holders = overlap.held->holders;
  const auto own = std::ranges::find(holders, receiver, &Holder::rank);
  if (own != holders.end()) return *own;
  const Holder& source = *std::ranges::min_element(
      holders, {}, [&](const Holder& holder) { return sent_[static_cast<size_t>(holder.rank)]; });
  sent_[static_cast<size_t>(source.rank)] += overlap.elements;
  return source;
}

WeightMove make_move(const Transfer& transfer) {
  const HeldBox& held = *transfer.overlap->held;
  const PartBox& box = transfer.needed->box;
  const ParameterInfo& info = *transfer.needed->info;
  const tensor::Box both = tensor::intersect(held.box, box.on_disk);
  return {.extents = tensor::extents_of(both),
          .from = place_inside(transfer.source->place, held.box, both),
          .to = place_inside({info.id, box.in_parameter, box.strides}, box.on_disk, both),
          .dtype = info.dtype};
}

std::vector<int64_t> TransferList::count_elements() const {
  std::vector<int64_t> of_pair(num_ranks_ * num_ranks_, 0);
  for (const Transfer& transfer : transfers_) {
    const auto receiver = static_cast<size_t>(transfer.receiver);
    const auto sender = static_cast<size_t>(transfer.source->rank);
    if (sender != receiver) of_pair[receiver * num_ranks_ + sender] += transfer.overlap->elements;
  }
  return of_pair;
}

// Every pair in as many rounds: those that the rank with the most to send or to receive needs.
std::vector<PairRounds> cut_pairs(const std::vector<int64_t>& elements, size_t num_ranks,
                                  int64_t round_elements) {
  int64_t most = 0;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    int64_t received = 0, sent = 0;
    for (size_t peer = 0; peer < num_ranks; ++peer) {
      received += elements[rank * num_ranks + peer];
      sent += elements[peer * num_ranks + rank];
    }
    most = std::max({most, received, sent});
  }
  const auto divide_up = [](int64_t n, int64_t by) {
    return std::max<int64_t>(1, (n + by - 1) / by);
  };
  const int64_t num_rounds = divide_up(most, round_elements);
  std::vector<PairRounds> pairs;
  for (const int64_t of_pair : elements) pairs.push_back({divide_up(of_pair, num_rounds)});
  return pairs;
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
  const TransferList list(from, to);
  std::vector<PairRounds> pairs = cut_pairs(list.count_elements(), num_ranks, round_elements);
  std::vector<WeightPlan> plans(ranks.size());
  std::vector<WeightPlan*> plan_of(num_ranks, nullptr);
  for (size_t i = 0; i < ranks.size(); ++i) {
    plans[i].sends.resize(num_ranks);
    plans[i].receives.resize(num_ranks);
    plan_of.at(static_cast<size_t>(ranks[i])) = &plans[i];
  }
  int64_t num_rounds = 0;
  const auto add_move = [&](const Transfer& transfer) {
    const Overlap& overlap = *transfer.overlap;
    const auto receiver = static_cast<size_t>(transfer.receiver);
    const auto sender = static_cast<size_t>(transfer.source->rank);
    const bool is_local = sender == receiver;
    WeightPlan *from_plan = plan_of[sender], *to_plan = plan_of[receiver];
    if (is_local && to_plan == nullptr) return;
    PairRounds& pair = pairs[receiver * num_ranks + sender];
    if (from_plan == nullptr && to_plan == nullptr) {
      num_rounds = std::max(num_rounds, pair.skip(overlap.rows, overlap.elements) + 1);
      return;
    }
    WeightMove move = make_move(transfer);
    if (is_local) return to_plan->local.push_back(std::move(move));
    const int64_t at_once = rows_at_once(overlap.rows, overlap.elements, pair.of_round);
    for (WeightMove& piece : cut_rows(move, at_once)) {
      piece.round = pair.next(piece.num_elements());
      num_rounds = std::max(num_rounds, piece.round + 1);
      if (from_plan != nullptr) from_plan->sends[receiver].push_back(piece);
      if (to_plan != nullptr) to_plan->receives[sender].push_back(std::move(piece));
    }
  };
  std::ranges::for_each(list.transfers(), add_move);
  for (WeightPlan& plan : plans) plan.num_rounds = num_rounds;
  return plans;
}

WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank,
                            int64_t round_elements) {
  return make_weight_plans(from, to, {{rank}}, round_elements)[0];
}

}  // namespace slimexx::model
