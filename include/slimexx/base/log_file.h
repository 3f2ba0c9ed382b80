// The file of open_log_file (log.h) while a run lasts.
#pragma once

namespace slimexx {

// Begins this rank's log file anew, with a warning, where somebody removed it.
void keep_log_file();

}  // namespace slimexx
