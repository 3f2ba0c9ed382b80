#include "cli/thread_ranks.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/failure.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::cli {
namespace {

// A failing thread rank ends the process, just as a failing process ends the other ranks.
void run_thread_rank(const Session& session, const std::function<void(Session&)>& body,
                     dist::Collective& ranks) {
  const ThreadRankScope scope(ranks.rank());
  dist::World world(std::move(ranks));
  set_log_rank(world.rank());
  Session own{world, session.words};
  try {
    body(own);
  } catch (...) {
    const Failure failure = describe_current_exception();
    if (!failure.is_interrupt) report_failure(failure, &world);
    throw;
  }
}

}  // namespace

void add_thread_ranks_flag(CLI::App& app, int& thread_ranks) {
  app.add_option("--thread-ranks", thread_ranks,
                 "Run N ranks as threads of this process, on the CPU or, with --device cuda, on "
                 "one shared GPU: to try a large grid on a small host")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
}

void run_on_ranks(int thread_ranks, Session& session, const std::function<void(Session&)>& body) {
  if (thread_ranks == 0) return body(session);
  if (session.world.size() > 1) {
    throw Error(ErrorCode::kUsage, "--thread-ranks works in one process only",
                "leave out --thread-ranks, or start without mpirun", "--thread-ranks");
  }
  dist::run_thread_ranks(thread_ranks,
                         [&](dist::Collective& ranks) { run_thread_rank(session, body, ranks); });
}

tensor::Device select_rank_device(const dist::World& world, const std::string& name) {
  if (!world.are_threads()) return rl::select_device(name, world.local_rank());
  return rl::select_device(name.empty() ? "cpu" : name, 0);
}

}  // namespace slimexx::cli
