#include "rl/checkpoint/stop_signal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <mutex>
#include <string>

namespace slimexx::rl {
namespace {

std::atomic<int> requested = 0, ended_by_launcher = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler sets it");
pid_t launcher = 0;  // set before the handler is installed

// The pid of the Open MPI process that started this one, maybe through a shell; 0 if there is none.
// mpirun execs orterun up to version 4 and prterun from 5 on; orted and prted run on other hosts.
pid_t find_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return 0;
  for (pid_t pid = ::getppid(); pid > 1;) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));  // pid (name) state parent ...
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t begin = stat.find('('), end = stat.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 4 > stat.size()) return 0;
    const std::string name = stat.substr(begin + 1, end - begin - 1);
    for (const char* known : {"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun",
                              "orted", "prterun", "prte", "prted"}) {
      if (name == known) return pid;
    }
    pid = std::atoi(stat.c_str() + end + 4);
  }
  return 0;
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (signal == SIGINT && requested != 0) ::_exit(130);
  if (signal == SIGXCPU && requested != 0) return;  // SIGXCPU is sent every second
  requested = 1;
  // If a rank failed, mpirun ends all ranks with SIGTERM and by default kills them one second
  // later, so the notice must not promise a checkpoint.
  const bool is_ended = signal == SIGTERM && launcher != 0 && info->si_pid == launcher;
  if (is_ended) ended_by_launcher = 1;
  const char* text = is_ended
                         ? "\n"
                           "mpirun ends this run, because a rank failed or mpirun was stopped; if "
                           "there is time, the state will be saved\n"
                         : "\n"
                           "stopping: generation is interrupted, an optimizer step in progress is "
                           "finished, and the state is saved (Ctrl-C again to stop now)\n";
  // A failed write of the notice changes nothing.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void install() {
  launcher = find_launcher();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  // Signals that launchers send before they end a job: USR2 (submitit, LSF), XCPU (limit on CPU
  // time), PWR (host or container shuts down).
  for (int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR, SIGINT})
    sigaction(signal, &action, nullptr);
  // SIGHUP: the terminal was closed. If it is ignored, as under nohup, it stays ignored.
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

void install_stop_signals() {
  static std::once_flag once;  // ranks may be threads
  std::call_once(once, install);
}

bool stop_was_requested() { return requested != 0; }
bool launcher_ends_ranks() { return ended_by_launcher != 0; }

}  // namespace slimexx::rl
