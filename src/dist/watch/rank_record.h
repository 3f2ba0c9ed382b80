// RUN/ranks/rank_NNN: a rank's activity as one line of JSON, rewritten ten times a second, for
// ranks of other hosts and for users. The writer holds a lock on the file as long as it lives.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/base/activity.h"

namespace slimexx::dist {

class RankRecord {
 public:
  RankRecord(const std::string& directory, int rank);  // throws Error(kEnvironment)
  ~RankRecord();                                       // removes the file
  RankRecord(const RankRecord&) = delete;
  RankRecord& operator=(const RankRecord&) = delete;
  // Returns whether the write succeeded. `to_server`: sync it, so that other hosts on a shared file
  // system see it.
  bool write(const ActivityView& view, bool to_server);

 private:
  std::string path_;
  int fd_ = -1, rank_ = 0;
  bool is_locked_ = false;  // not every file system supports locks
  int64_t num_signs_ = 0;
};

struct SeenRecord {
  ActivityView activity;
  int64_t sign = 0;      // changes with every write
  bool is_dead = false;  // the writer had the lock and no longer holds it
};

// Empty if there is no readable record: the rank has ended normally, or the folder is gone.
std::optional<SeenRecord> read_record(const std::string& directory, int rank);

// Removes records left by a killed run; other files stay.
void remove_records(const std::string& directory);

}  // namespace slimexx::dist
