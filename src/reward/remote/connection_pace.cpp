#include "reward/remote/connection_pace.h"

#include <algorithm>

namespace slimexx::reward {
namespace {

// Upper bound on connections that are not accepted yet. More would compete for the last places of
// the service's queue, where a connection may look accepted although it is not.
constexpr int64_t kMostOpening = 4;
constexpr double kLeastPatience_s = 0.02;
constexpr double kPatienceFactor = 8;  // times the longest time until a connection was accepted

}  // namespace

ConnectionPace::ConnectionPace(int64_t most, double stall_s)
    : most_(most), limit_(most), stall_s_(stall_s), patience_s_(stall_s) {}

bool ConnectionPace::has_room(int64_t open, int64_t opening) const {
  return open < limit_ && opening < kMostOpening;
}

void ConnectionPace::note_taken(double seconds) {
  if (seconds >= stall_s_) return;  // TCP retried, so the time says nothing
  longest_s_ = std::max(longest_s_, seconds);
  patience_s_ = std::min(stall_s_, std::max(kLeastPatience_s, kPatienceFactor * longest_s_));
}

// Raises the limit by one when `limit_` answers have come.
void ConnectionPace::note_answer() {
  if (++num_answers_ < limit_) return;
  num_answers_ = 0;
  limit_ = std::min(limit_ + 1, most_);
}

void ConnectionPace::note_stall(int64_t open) {
  limit_ = std::max<int64_t>(1, open);
  num_answers_ = 0;
}

}  // namespace slimexx::reward
