// Whether ranks wait for one another for ever: what each waits for, and for how long nothing has
// moved anywhere.
//
// A rank in a collective call waits for those of its group that have begun fewer calls on it, or
// that are in another call under the same number; one in a send or receive for its peer, unless
// that is in the other half of it. Where all have come the call moves data, however long. A rank in
// no call does nothing if the watch of its process sees no thread of it at work and no wait that is
// declared (OutsideWaitScope). Only when all ranks wait or do nothing is that a hang: whoever works
// may be what the others wait for.
//
// Not seen: work that never ends, a call that all have begun and that stands still (a link that is
// wedged, roots that differ), operations that were queued on devices, waits for these, and ranks
// that have left. RankWatchOptions::wait_limit_s is for them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/watch/rank_peer.h"
#include "slimexx/base/activity.h"

namespace slimexx::dist {

// What one rank waits for, at one look.
struct RankWait {
  bool moves = false;          // for all that its calls tell
  std::vector<int> for_ranks;  // empty: for nobody
};

// By rank. `ranks`: of the whole job.
std::vector<RankWait> find_waits(std::span<const ActivityView> ranks);

// A line a rank: where it is, what it does and for whom it waits.
std::string list_ranks(std::span<const Peer> peers, std::span<const ActivityView> ranks);

// What keeps a run: one rank, and what the others do.
struct Hang {
  int rank = 0;  // one that is in no call, else the one that most of them wait for
  std::string state, others;
};

class HangJudge {
 public:
  // One more look at all, `seconds` after the last. Tells of a hang when nothing has moved for so
  // long. Where a rank's watch does not look, time stands still: nothing is known of that rank.
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
