// SIGTERM, SIGUSR1 and the first SIGINT ask the run to cut off generation, finish an update that
// has begun, save and exit 130; a second SIGINT ends the process at once.
#pragma once

namespace slimexx::rl {

void install_stop_signals();
bool stop_was_requested();
// Open MPI ends all ranks, as one failed or it was told to.
bool launcher_ends_ranks();

}  // namespace slimexx::rl
