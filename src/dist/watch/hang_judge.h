// Detects deadlocks: determines the ranks that each rank waits for, and for how long no rank has
// made progress.
//
// A rank in a collective call waits for the ranks of its group that have begun fewer calls on the
// group, or that are in a different call with the same number. A rank in a send or receive waits
// for its peer, unless the peer is in the matching call. When all have arrived, the call counts as
// moving data, however long it takes. A rank in no call counts as idle if its process has no thread
// at work and no declared wait (OutsideWaitScope). The run hangs only if every rank waits or is
// idle: a rank that works may be the one that the others wait for.
//
// Not detected: work that never ends; a call that all ranks have begun but that is stuck (a broken
// link, different roots); operations queued on devices, and waits for these; ranks that have left.
// RankWatchOptions::wait_limit_s covers them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/watch/rank_peer.h"
#include "slimexx/base/activity.h"

namespace slimexx::dist {

// The ranks that one rank waits for, at one look.
struct RankWait {
  bool moves = false;          // its call may be moving data
  std::vector<int> for_ranks;  // empty: waits for no rank
};

// Result by rank. `ranks`: all ranks of the job.
std::vector<RankWait> find_waits(std::span<const ActivityView> ranks);

// One line per rank: its host and process, its activity, and the ranks that it waits for.
std::string list_ranks(std::span<const Peer> peers, std::span<const ActivityView> ranks);

// The report of a hang: the culprit rank, its state, and a rank that waits for it.
struct Hang {
  int rank = 0;  // the rank that most ranks wait for, if possible one in no call
  std::string state, others;
};

class HangJudge {
 public:
  // Looks once more, `seconds` after the last look. Returns a hang if there was no progress for
  // `limit_s`. Time counts only while the watches of all ranks look: otherwise the state of some
  // rank is unknown.
  std::optional<Hang> look(std::span<const ActivityView> ranks, double seconds, double limit_s);

 private:
  struct Sign {
    int64_t progress = -1, work = -1, looks = -1;
  };
  bool have_moved(std::span<const ActivityView> ranks);
  bool have_all_looked(std::span<const ActivityView> ranks);

  std::vector<Sign> signs_;
  double still_s_ = 0, pending_s_ = 0;
};

}  // namespace slimexx::dist
