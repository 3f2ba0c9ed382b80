// Forked ranks under a RankWatch that tells the test what it would tell the user.
#pragma once
#include <functional>
#include <string>

#include "dist/watch/forked_ranks.h"
#include "slimexx/dist/rank_watch.h"

namespace slimexx::dist {

constexpr double kSoon = 8;  // seconds, on a busy machine, for what takes a tenth

void sleep_s(double seconds);

struct WatchedRun {
  RankWatchOptions options{};
  bool are_hosts = false;  // every rank on a host of its own
  std::string folder = {};
};

using RankWork = std::function<void(Collective&, ForkedState&)>;

// The body of ranks that do `work`.
RankWork watched(WatchedRun run, RankWork work);

}  // namespace slimexx::dist
