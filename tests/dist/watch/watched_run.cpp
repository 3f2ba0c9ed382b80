#include "dist/watch/watched_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace slimexx::dist {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

RankWork watched(WatchedRun run, RankWork work) {
  return [run = std::move(run), work = std::move(work)](Collective& ranks, ForkedState& state) {
    RankWatchOptions options = run.options;
    if (run.are_hosts) options.process_space = fmt::format("host {}", ranks.rank());
    RankWatch watch(
        ranks, options,
        [&](const FirstCause& cause) {
          if (++state.num_told > 1) return false;
          state.cause_rank = cause.rank;
          std::strncpy(state.phase, cause.phase.c_str(), sizeof state.phase - 1);
          std::strncpy(state.call, cause.call.c_str(), sizeof state.call - 1);
          std::strncpy(state.what, cause.what.c_str(), sizeof state.what - 1);
          return true;
        },
        [&] { return state.launcher_ends.load(); });
    if (!run.folder.empty()) watch.show_records(ranks, run.folder);
    work(ranks, state);
  };
}

}  // namespace slimexx::dist
