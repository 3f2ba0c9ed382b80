// slimexx: parses the arguments, runs one verb, and reports exceptions as a message and an exit
// status.
#include <fcntl.h>

#include <csignal>
#include <optional>
#include <string_view>

#include "cli/command_line.h"
#include "cli/cores.h"
#include "cli/failure.h"
#include "cli/standard_output.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/dist/world.h"

namespace slimexx::cli {
namespace {

// Verbs that skip check_launch: they only print facts, or (doctor) diagnose the launch themselves.
bool works_alone(std::string_view verb) {
  return verb == "doctor" || verb == "version" || verb == "--version" || verb == "docs";
}

void check_launch(const dist::World& world) {
  const auto fault = world.lone_rank_fault();
  if (!fault) return;
  if (world.launch().is_certain) throw *fault;
  log_warn("{}; {}", fault->message(), fault->hint());
}

void run(int argc, char** argv, dist::World& world) {
  set_log_rank(world.rank());
  const Invocation invocation = parse_command_line({argv + 1, argv + argc});
  if (!invocation.body) {
    if (world.rank() == 0) write_stdout(invocation.text);
  } else {
    if (!works_alone(argv[1])) check_launch(world);
    set_num_threads(cores_of_this_rank(world));
    Session session{world, {argv, argv + argc}};
    invocation.body(session);
  }
  flush_stdout();
}

int run_and_report(int argc, char** argv) {
  std::optional<dist::World> world;
  try {
    world.emplace();
    run(argc, argv, *world);
    return 0;
  } catch (...) {
    const Failure failure = describe_current_exception();
    report_failure(failure, world ? &*world : nullptr);
    return failure.status;
  }
}

// Occupies the descriptors of closed standard streams with /dev/null, opened in the wrong
// direction, so that I/O on them fails. Otherwise the next opened file would get such a descriptor,
// and printed text would go to that file.
void occupy_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) == -1) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace
}  // namespace slimexx::cli

int main(int argc, char** argv) {
  // Let writes to closed pipes or sockets, and to files beyond the size limit (ulimit -f), return
  // errors instead of killing the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  slimexx::cli::occupy_closed_streams();
  const int status = slimexx::cli::run_and_report(argc, argv);
  if (status == slimexx::cli::kReaderGoneStatus) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  return status;
}
