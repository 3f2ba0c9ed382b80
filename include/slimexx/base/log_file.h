// Maintenance of the file of open_log_file (log.h) during a run.
#pragma once

namespace slimexx {

// Recreates this rank's log file, with a warning, if it was removed.
void keep_log_file();

}  // namespace slimexx
