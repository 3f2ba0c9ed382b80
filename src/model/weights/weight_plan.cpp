#include "slimexx/model/weight_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {
namespace {

// Rows per piece, so that a piece has at most `most` elements.
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

// Assigns the transfers of a pair of ranks to rounds of a fixed number of elements. A piece belongs
// to the round in which it begins. All ranks count all pairs in the same way, so they agree without
// communication.
struct PairRounds {
  int64_t of_round = 0;
  int64_t moved = 0;
  int64_t next(int64_t elements) {
    const int64_t round = moved / of_round;
    moved += elements;
    return round;
  }
  // Counts all pieces of a box; returns the round of the last one.
  int64_t skip(int64_t rows, int64_t elements) {
    const int64_t at_once = rows_at_once(rows, elements, of_round);
    const int64_t last_piece = (rows - 1) / at_once * at_once * (elements / rows);
    const int64_t round = (moved + last_piece) / of_round;
    moved += elements;
    return round;
  }
};

// A part of a box that a receiver needs, and the source box that has it.
struct Overlap {
  const ParameterInfo* info = nullptr;
  PartBox needed;
  const HeldBox* held = nullptr;
  int64_t rows = 0, elements = 0;  // rows: 1 for a tensor without dimensions
};

// Sorted by the list's boxes, then by the source boxes that overlap them.
std::vector<Overlap> find_overlaps(const std::vector<ParameterInfo>& list,
                                   const HeldTensors& tensors) {
  std::vector<Overlap> overlaps;
  for (const ParameterInfo& info : list) {
    for (const PartBox& box : list_boxes(info)) {
      const auto tensor = tensors.by_name.find(info.parts[box.part].name);
      SLX_CHECK(tensor != tensors.by_name.end(), "no rank holds {}", info.parts[box.part].name);
      for (const HeldBox& held : tensor->second.boxes) {
        if (!tensor::overlap(held.box, box.on_disk)) continue;
        const tensor::Box both = tensor::intersect(held.box, box.on_disk);
        overlaps.push_back({&info, box, &held, both.begin.empty() ? 1 : both.end[0] - both.begin[0],
                            tensor::count_elements(both)});
      }
    }
  }
  return overlaps;
}

WeightMove make_move(const Overlap& overlap, const BoxPlace& from) {
  const PartBox& box = overlap.needed;
  const tensor::Box both = tensor::intersect(overlap.held->box, box.on_disk);
  return {.extents = tensor::extents_of(both),
          .from = place_inside(from, overlap.held->box, both),
          .to = place_inside({overlap.info->id, box.in_parameter, box.strides}, box.on_disk, both),
          .dtype = overlap.info->dtype};
}

// Chooses the sender of a box: the holder that has sent the fewest elements so far; on a tie, the
// lowest rank.
class Senders {
 public:
  explicit Senders(size_t num_ranks) : sent_(num_ranks, 0) {}
  int choose(const std::vector<int>& holders, int64_t elements) {
    Heap& heap = heaps_[&holders];
    if (heap.empty())
      for (const int rank : holders) heap.push({sent(rank), rank});
    // Entries may be stale: a rank may have sent other boxes since its entry was pushed.
    while (heap.top().first != sent(heap.top().second)) {
      const int rank = heap.top().second;
      heap.pop();
      heap.push({sent(rank), rank});
    }
    const int rank = heap.top().second;
    sent(rank) += elements;
    return rank;
  }

 private:
  using Heap = std::priority_queue<std::pair<int64_t, int>, std::vector<std::pair<int64_t, int>>,
                                   std::greater<>>;
  int64_t& sent(int rank) { return sent_[static_cast<size_t>(rank)]; }
  std::vector<int64_t> sent_;  // elements, by rank
  std::map<const std::vector<int>*, Heap> heaps_;
};

}  // namespace

// The transfers that every rank of the new layout needs. Replicas share a parameter list; ranks
// that share the lists of both layouts share everything except the senders. The time is
// proportional to the transfers of all ranks.
class TransferList {
 public:
  // Both layouts must outlive this object.
  TransferList(const Layout& from, const Layout& to);
  TransferList(const TransferList&) = delete;  // groups point into other members
  TransferList& operator=(const TransferList&) = delete;

  struct Transfer {
    const Overlap* overlap;
    int sender;
  };
  // Transfers that a rank receives from others, in the order of its list.
  std::vector<Transfer> received(int receiver) const;
  std::span<const Overlap* const> local(int receiver) const { return group(receiver).local; }
  const BoxPlace& place_at(const Overlap& overlap, int sender) const {
    return *find_place(*overlap.held, tensors_.list_of_rank[static_cast<size_t>(sender)]);
  }
  // The largest number of elements that any rank sends or receives.
  int64_t most_elements() const { return most_elements_; }

 private:
  struct Group {
    std::vector<const Overlap*> local, remote;
  };
  const Group& group(int rank) const { return *group_of_[static_cast<size_t>(rank)]; }
  const Group* find_group(const Layout& to, size_t rank);
  void choose_senders();

  HeldTensors tensors_;
  std::map<const std::vector<ParameterInfo>*, std::vector<Overlap>> overlaps_of_;
  std::map<std::pair<int, const std::vector<ParameterInfo>*>, Group> groups_;
  std::vector<const Group*> group_of_;     // by rank
  std::vector<std::vector<int>> senders_;  // by rank, then by remote overlap
  int64_t most_elements_ = 0;
};

TransferList::TransferList(const Layout& from, const Layout& to)
    : tensors_(list_held_tensors(from)) {
  SLX_CHECK_EQ(to.ranks.size(), from.ranks.size());
  check_covered(tensors_);
  for (size_t rank = 0; rank < to.ranks.size(); ++rank) group_of_.push_back(find_group(to, rank));
  choose_senders();
}

const TransferList::Group* TransferList::find_group(const Layout& to, size_t rank) {
  const auto& list = to.ranks[rank];
  const int own_list = tensors_.list_of_rank[rank];
  const auto [found, is_new] = groups_.try_emplace({own_list, list.get()});
  Group& group = found->second;
  if (!is_new) return &group;
  const auto [overlaps, is_first] = overlaps_of_.try_emplace(list.get());
  if (is_first) overlaps->second = find_overlaps(*list, tensors_);
  for (const Overlap& overlap : overlaps->second)
    (find_place(*overlap.held, own_list) != nullptr ? group.local : group.remote)
        .push_back(&overlap);
  return &group;
}

void TransferList::choose_senders() {
  const size_t num_ranks = group_of_.size();
  Senders senders(num_ranks);
  std::vector<int64_t> received(num_ranks, 0), sent(num_ranks, 0);
  for (size_t receiver = 0; receiver < num_ranks; ++receiver) {
    std::vector<int>& chosen = senders_.emplace_back();
    for (const Overlap* overlap : group_of_[receiver]->remote) {
      chosen.push_back(senders.choose(*overlap->held->holders, overlap->elements));
      received[receiver] += overlap->elements;
      sent[static_cast<size_t>(chosen.back())] += overlap->elements;
    }
  }
  for (size_t rank = 0; rank < num_ranks; ++rank)
    most_elements_ = std::max({most_elements_, received[rank], sent[rank]});
}

std::vector<TransferList::Transfer> TransferList::received(int receiver) const {
  const std::vector<int>& senders = senders_[static_cast<size_t>(receiver)];
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < senders.size(); ++i)
    transfers.push_back({group(receiver).remote[i], senders[i]});
  return transfers;
}

namespace {

int64_t count_rounds(int64_t n, int64_t by) { return std::max<int64_t>(1, (n + by - 1) / by); }

// The rounds of the transfers that one rank receives. All pairs of ranks use the round count of the
// busiest rank.
class ReceiverRounds {
 public:
  ReceiverRounds(const std::vector<TransferList::Transfer>& transfers, int64_t num_rounds) {
    for (const auto& transfer : transfers)
      pairs_[transfer.sender].of_round += transfer.overlap->elements;
    for (auto& [sender, pair] : pairs_) pair.of_round = count_rounds(pair.of_round, num_rounds);
  }
  PairRounds& from(int sender) { return pairs_.at(sender); }

 private:
  std::unordered_map<int, PairRounds> pairs_;
};

}  // namespace

int64_t WeightMove::num_elements() const {
  int64_t n = 1;
  for (const int64_t extent : extents) n *= extent;
  return n;
}

WeightTransfers::WeightTransfers(Layout from, Layout to)
    : from_(std::move(from)),
      to_(std::move(to)),
      list_(std::make_unique<const TransferList>(from_, to_)) {}

WeightTransfers::~WeightTransfers() = default;

std::vector<WeightPlan> make_weight_plans(const Layout& from, const Layout& to,
                                          std::span<const int> ranks, int64_t round_elements) {
  return WeightTransfers(from, to).make_plans(ranks, round_elements);
}

std::vector<WeightPlan> WeightTransfers::make_plans(std::span<const int> ranks,
                                                    int64_t round_elements) const {
  const size_t num_ranks = from_.ranks.size();
  const TransferList& list = *list_;
  const int64_t most_rounds = count_rounds(list.most_elements(), round_elements);
  std::vector<WeightPlan> plans(ranks.size());
  std::vector<WeightPlan*> plan_of(num_ranks, nullptr);
  for (size_t i = 0; i < ranks.size(); ++i) {
    plans[i].sends.resize(num_ranks);
    plans[i].receives.resize(num_ranks);
    plan_of.at(static_cast<size_t>(ranks[i])) = &plans[i];
  }
  int64_t num_rounds = 0;
  const auto add_move = [&](int receiver, const TransferList::Transfer& transfer,
                            PairRounds& pair) {
    const Overlap& overlap = *transfer.overlap;
    WeightPlan* from_plan = plan_of[static_cast<size_t>(transfer.sender)];
    WeightPlan* to_plan = plan_of[static_cast<size_t>(receiver)];
    if (from_plan == nullptr && to_plan == nullptr) {
      num_rounds = std::max(num_rounds, pair.skip(overlap.rows, overlap.elements) + 1);
      return;
    }
    const WeightMove move = make_move(overlap, list.place_at(overlap, transfer.sender));
    const int64_t at_once = rows_at_once(overlap.rows, overlap.elements, pair.of_round);
    for (WeightMove& piece : cut_rows(move, at_once)) {
      piece.round = pair.next(piece.num_elements());
      num_rounds = std::max(num_rounds, piece.round + 1);
      if (from_plan != nullptr) from_plan->sends[static_cast<size_t>(receiver)].push_back(piece);
      if (to_plan != nullptr)
        to_plan->receives[static_cast<size_t>(transfer.sender)].push_back(std::move(piece));
    }
  };
  for (int receiver = 0; receiver < static_cast<int>(num_ranks); ++receiver) {
    const auto transfers = list.received(receiver);
    ReceiverRounds rounds(transfers, most_rounds);
    for (const auto& transfer : transfers)
      add_move(receiver, transfer, rounds.from(transfer.sender));
    if (WeightPlan* own = plan_of[static_cast<size_t>(receiver)])
      for (const Overlap* overlap : list.local(receiver))
        own->local.push_back(make_move(*overlap, list.place_at(*overlap, receiver)));
  }
  for (WeightPlan& plan : plans) plan.num_rounds = num_rounds;
  return plans;
}

}  // namespace slimexx::model
