#include "dist/watch/hang_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace slimexx::dist {
namespace {

constexpr size_t kMostNames = 8, kMostLines = 64;
// Upper bound on the seconds that count for a period in which some rank's watch did not look,
// because its process was stopped.
constexpr double kMostPending = 2;

bool are_halves(const ActivityView& a, const ActivityView& b) {
  return (a.call == "send" && b.call == "receive") || (a.call == "receive" && b.call == "send");
}

// Describes the wait of a send or receive for rank `own.peer` of the group.
RankWait find_peer(std::span<const ActivityView> ranks, const ActivityView& own) {
  const ActivityView::Membership* self = own.find_membership(own.group_id);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const ActivityView& other = ranks[r];
    const ActivityView::Membership* m = other.find_membership(own.group_id);
    if (m == nullptr || self == nullptr || m->rank != own.peer) continue;
    if (other.is_in_call && other.group_id == own.group_id && other.peer == self->rank &&
        are_halves(own, other))
      return {.moves = true, .for_ranks = {}};
    return {.moves = false, .for_ranks = {static_cast<int>(r)}};
  }
  return {.moves = true, .for_ranks = {}};  // the peer is not known
}

RankWait find_missing(std::span<const ActivityView> ranks, const ActivityView& own) {
  RankWait wait;
  int64_t num_known = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const ActivityView& other = ranks[r];
    const ActivityView::Membership* m = other.find_membership(own.group_id);
    if (m == nullptr) continue;
    ++num_known;
    const bool is_elsewhere = other.is_in_call && other.group_id == own.group_id &&
                              other.number == own.number && other.call != own.call;
    if (m->num_calls < own.number || is_elsewhere) wait.for_ranks.push_back(static_cast<int>(r));
  }
  if (num_known != own.num_ranks) wait.for_ranks.clear();  // an unknown rank may be missing
  wait.moves = wait.for_ranks.empty();
  return wait;
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostNames); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return text + (ranks.size() > kMostNames ? ", ..." : "");
}

// The rank that most others wait for. If some ranks are in no call, only those are considered.
size_t find_culprit(std::span<const ActivityView> ranks, std::span<const RankWait> waits) {
  std::vector<int> num_waiting(ranks.size());
  for (const RankWait& wait : waits)
    for (const int rank : wait.for_ranks) ++num_waiting[static_cast<size_t>(rank)];
  const bool is_one_idle = std::ranges::any_of(ranks, [](const auto& r) { return !r.is_in_call; });
  size_t culprit = ranks.size();
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (is_one_idle && ranks[r].is_in_call) continue;
    if (culprit == ranks.size() || num_waiting[r] > num_waiting[culprit]) culprit = r;
  }
  return culprit;
}

Hang describe_hang(std::span<const ActivityView> ranks, std::span<const RankWait> waits,
                   double seconds) {
  const size_t culprit = find_culprit(ranks, waits);
  Hang hang{.rank = static_cast<int>(culprit), .state = {}, .others = {}};
  hang.state = ranks[culprit].is_in_call
                   ? fmt::format("has waited {1:.0f} s for {0}, which cannot join",
                                 name_ranks(waits[culprit].for_ranks), seconds)
                   : fmt::format("has done nothing for {:.0f} s", seconds);
  const auto waiting = std::ranges::find_if(waits, [&](const RankWait& wait) {
    return std::ranges::count(wait.for_ranks, hang.rank) > 0;
  });
  if (waiting != waits.end()) {
    const auto r = static_cast<size_t>(waiting - waits.begin());
    hang.others = fmt::format("; rank {} waits for it, in {}", r, describe_activity(ranks[r]));
  }
  return hang;
}

}  // namespace

std::vector<RankWait> find_waits(std::span<const ActivityView> ranks) {
  std::vector<RankWait> waits;
  for (const ActivityView& own : ranks) {
    if (!own.is_in_call) {
      waits.push_back({});
    } else if (own.group_id == 0) {
      waits.push_back({.moves = true, .for_ranks = {}});
    } else {
      waits.push_back(own.peer >= 0 ? find_peer(ranks, own) : find_missing(ranks, own));
    }
  }
  return waits;
}

std::string list_ranks(std::span<const Peer> peers, std::span<const ActivityView> ranks) {
  const auto waits = find_waits(ranks);
  std::string text;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r == kMostLines) return text + "\n  ...";
    text += fmt::format("\n  rank {} {}: {}", r, peers[r].place(), describe_activity(ranks[r]));
    if (!waits[r].for_ranks.empty()) text += "; waits for " + name_ranks(waits[r].for_ranks);
  }
  return text;
}

std::optional<Hang> HangJudge::look(std::span<const ActivityView> ranks, double seconds,
                                    double limit_s) {
  bool moves = have_moved(ranks);
  std::vector<RankWait> waits;
  if (!moves) {  // only if needed: find_waits is quadratic in the number of ranks
    waits = find_waits(ranks);
    moves = std::ranges::any_of(waits, &RankWait::moves);
  }
  if (moves) {
    still_s_ = pending_s_ = 0;
    return std::nullopt;
  }
  pending_s_ = std::min(pending_s_ + seconds, kMostPending);
  if (have_all_looked(ranks)) still_s_ += std::exchange(pending_s_, 0);
  if (still_s_ < limit_s) return std::nullopt;
  return describe_hang(ranks, waits, still_s_);
}

// Whether any rank made progress, worked or left since the last look.
bool HangJudge::have_moved(std::span<const ActivityView> ranks) {
  signs_.resize(ranks.size());
  bool moved = false;
  for (size_t r = 0; r < ranks.size(); ++r) {
    moved |= ranks[r].has_left;
    moved |= std::exchange(signs_[r].progress, ranks[r].progress) != ranks[r].progress;
    moved |= std::exchange(signs_[r].work, ranks[r].work) != ranks[r].work;
  }
  return moved;
}

// Whether every rank's watch has looked since the last time that this function returned true.
bool HangJudge::have_all_looked(std::span<const ActivityView> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r)
    if (signs_[r].looks == ranks[r].looks) return false;
  for (size_t r = 0; r < ranks.size(); ++r) signs_[r].looks = ranks[r].looks;
  return true;
}

}  // namespace slimexx::dist
