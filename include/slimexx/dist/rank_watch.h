// Ends a run when a rank died or was stopped, and reports the rank, its host and its call.
// Otherwise the other ranks would wait for that rank in a collective for ever, or the launcher
// would kill them without a message. A rank that works for a long time is not affected. The watch
// also ends a run in which all ranks wait for one another or do nothing; hang_judge.h describes
// this test and its limits. Each rank's activity (activity.h) lies in memory shared by the ranks of
// its host. Ten times a second every rank reads this memory and checks the state of its host's
// processes. After show_records, each rank also writes its activity to a file, for users and for
// other hosts: rank 0 reads the files of other hosts' ranks, and the first rank of another host
// reads rank 0's.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// In seconds; 0: never. Time does not count while this process is stopped or its host sleeps.
struct RankWatchOptions {
  double warn_s = 2;         // a rank stopped for this long: warn
  double limit_s = 5;        // a rank stopped for this long: end the run with status 4
  double host_limit_s = 60;  // no sign from another host's rank while this rank waits: end the run
  double hang_limit_s = 7;   // all ranks wait for one another or do nothing: end the run
  double wait_warn_s = 120;  // no progress of any rank: log what each rank does
  double wait_limit_s = 3600;      // no progress of any rank: end the run
  std::string process_space = {};  // for tests: pretend to be on a host with this name
};

// Why a run ends; reported once.
struct FirstCause {
  int rank = 0;
  std::string host, phase, call;  // call: empty outside collective calls
  std::string what;               // the whole cause as a sentence
};

class RankWatch {
 public:
  // `claim` is called on the watch's own thread just before the process ends; other ranks may find
  // the same failure at that time. `claim` returns whether this rank is the first to report; only
  // that rank prints to stderr. `is_ending`: whether the launcher is ending all ranks; deaths more
  // than half a second after that are not a cause. Watches the calling thread. Collective.
  RankWatch(Collective& host, RankWatchOptions options,
            std::function<bool(const FirstCause&)> claim, std::function<bool()> is_ending);
  ~RankWatch();  // does not wait for other ranks; call on the constructing thread
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Creates the folder of records; the last rank to leave removes it. Throws Error(kEnvironment).
  // Collective.
  void show_records(Collective& host, const std::string& directory);
  // Does not return if a rank of this host has died: that death is then the cause of this rank's
  // error.
  void look_now();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::dist
