// SIGTERM, SIGUSR1 and the first SIGINT ask the run to cut off generation, finish the update in
// progress, save and exit 130. A second SIGINT ends the process at once.
#pragma once

namespace slimexx::rl {

void install_stop_signals();
bool stop_was_requested();
// Whether Open MPI ends all ranks: a rank failed, or mpirun was stopped.
bool launcher_ends_ranks();

}  // namespace slimexx::rl
