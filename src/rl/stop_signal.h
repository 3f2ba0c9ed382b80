// SIGTERM, SIGUSR1 and the first SIGINT ask the run to finish its step, save and exit 130; a second
// SIGINT ends the process at once.
#pragma once

namespace slimexx::rl {

void install_stop_signals();
bool stop_was_requested();

}  // namespace slimexx::rl
