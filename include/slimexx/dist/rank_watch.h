// Ends a run in which a rank died or was stopped, and says who, where and in which call: the others
// would wait for it in a collective for ever, or be ended by the launcher without a word of ours.
// A rank that merely works for long is left alone. Ends, too, a run in which all ranks wait for one
// another in calls, or do nothing at all: hang_judge.h says how that is told, and what is not seen.
//
// What a rank does (activity.h) lies in memory that all ranks of its host see. Ten times a second
// every rank looks there, and at the state of those processes. Once there is a folder, what each
// does also stands in a file, for people and for other hosts: the first rank looks at all, and the
// first rank of another host looks at that one.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// In seconds; 0: never. While this process itself is stopped, or its host sleeps, nobody ages.
struct RankWatchOptions {
  double warn_s = 2;         // that a rank was stopped, then a warning names it
  double limit_s = 5;        // that a rank was stopped, then the run ends with status 4
  double host_limit_s = 60;  // without a sign through the folder from a rank that is waited for
  double hang_limit_s = 7;   // that all ranks wait for one another or do nothing, then the run ends
  double wait_warn_s = 120;  // without progress of any rank, then a warning says what all do
  double wait_limit_s = 3600;      // without progress of any rank, then the run ends
  std::string process_space = {};  // for tests: as if this rank were on a host of that name
};

// Why a run ends, told once.
struct FirstCause {
  int rank = 0;
  std::string host, phase, call;  // call: empty outside of collective calls
  std::string what;               // all of that in a sentence
};

class RankWatch {
 public:
  // `claim` is called just before the process ends, on the watch's own thread, while others may
  // find the same: it returns whether this rank is the first, which then says so on stderr.
  // `is_ending`: whether the launcher ends all ranks; what dies half a second later is no cause.
  // Watches the calling thread. Collective.
  RankWatch(Collective& host, RankWatchOptions options,
            std::function<bool(const FirstCause&)> claim, std::function<bool()> is_ending);
  ~RankWatch();  // waits for nobody; on the thread that made it
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Makes the folder, which goes with the last rank. Throws Error(kEnvironment). Collective.
  void show_records(Collective& host, const std::string& directory);
  // Does not return if a rank of this host has died: an error of this one is then that one's.
  void look_now();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::dist
