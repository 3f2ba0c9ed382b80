// State that a rank's watch keeps for each rank, and the description that ranks exchange at the
// start.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "dist/watch/rank_page.h"
#include "slimexx/base/activity.h"

namespace slimexx::dist {

// A rank of the run; at index own_rank, this rank itself.
struct Peer {
  int rank = 0, pid = 0, tid = 0;
  uint64_t start = 0;  // start time of the process
  std::string host, space, page_name;
  std::unique_ptr<RankPage> page;  // if the rank is on this host
  ActivityView seen;               // for ranks of other hosts: the last record read
  int64_t sign = -1;
  double silence_s = 0;
  bool is_silent = false, has_left = false;

  std::string place() const;  // "(host node2, process 4711)"
};

// Describes the calling thread's rank to others. `space`: the pid namespace, from process_space().
std::string describe_self(const std::string& space, const std::string& page_name);
Peer read_description(const std::string& text, int rank);

}  // namespace slimexx::dist
