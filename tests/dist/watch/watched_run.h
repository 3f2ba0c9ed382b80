// Forked ranks under a RankWatch that reports to the test instead of the user.
#pragma once
#include <functional>
#include <string>

#include "dist/watch/forked_ranks.h"
#include "slimexx/dist/rank_watch.h"

namespace slimexx::dist {

constexpr double kSoon = 8;  // seconds; normally takes a tenth, but the host may be busy

void sleep_s(double seconds);

struct WatchedRun {
  RankWatchOptions options{};
  bool are_hosts = false;  // each rank counts as a host
  std::string folder = {};
};

using RankWork = std::function<void(Collective&, ForkedState&)>;

// The body for ranks that do `work` under a watch.
RankWork watched(WatchedRun run, RankWork work);

}  // namespace slimexx::dist
