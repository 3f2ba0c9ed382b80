// What a rank's watch knows of each rank, and how they tell each other at first.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "dist/watch/rank_page.h"
#include "slimexx/base/activity.h"

namespace slimexx::dist {

// Another rank, or at own_rank this one.
struct Peer {
  int rank = 0, pid = 0, tid = 0;
  uint64_t start = 0;  // of the process
  std::string host, space, page_name;
  std::unique_ptr<RankPage> page;  // of a rank that shares this one's host
  ActivityView seen;               // of other hosts: what its record said last
  int64_t sign = -1;
  double silence_s = 0;
  bool is_silent = false, has_left = false;

  std::string place() const;  // "(host node2, process 4711)"
};

// The calling thread's rank, for others. `space`: of pids, as process_space().
std::string describe_self(const std::string& space, const std::string& page_name);
Peer read_description(const std::string& text, int rank);

}  // namespace slimexx::dist
