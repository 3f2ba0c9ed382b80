// RUN/ranks/rank_NNN: what a rank does, as one line of JSON that it renews ten times a second. For
// the ranks of other hosts, and for people. Its writer holds a lock on it for its life.
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
  // Whether it could be written. `to_server`: hosts that share a file system see it then.
  bool write(const ActivityView& view, bool to_server);

 private:
  std::string path_;
  int fd_ = -1, rank_ = 0;
  bool is_locked_ = false;  // not every file system can
  int64_t num_signs_ = 0;
};

struct SeenRecord {
  ActivityView activity;
  int64_t sign = 0;      // other with every write
  bool is_dead = false;  // nobody holds the lock that its writer took
};

// Empty if there is none, or none that can be read: the rank has ended well, or the folder is gone.
std::optional<SeenRecord> read_record(const std::string& directory, int rank);

// Removes the records that a killed run left; other files stay.
void remove_records(const std::string& directory);

}  // namespace slimexx::dist
