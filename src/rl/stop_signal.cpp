#include "stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace slimexx::rl {
namespace {

volatile std::sig_atomic_t requested = 0;

void on_signal(int signal) {
  if (signal == SIGINT && requested != 0) ::_exit(130);
  requested = 1;
  constexpr char kText[] =
      "\nstopping after this step; the state will be saved (Ctrl-C again to stop now)\n";
  // A failed write of the notice changes nothing.
  [[maybe_unused]] const auto written = ::write(2, kText, sizeof(kText) - 1);
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
}

bool stop_was_requested() { return requested != 0; }

}  // namespace slimexx::rl
