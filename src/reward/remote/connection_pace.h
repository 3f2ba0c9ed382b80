// Decides how many connections to a service to open, and when to retry one that is not accepted. If
// the queue of a service is short, connections that do not fit wait for TCP's retries after one
// second, then two, four, ...
#pragma once
#include <cstdint>

namespace slimexx::reward {

class ConnectionPace {
 public:
  // At most `most` connections. Waits at most `stall_s` for a connection while others are accepted.
  ConnectionPace(int64_t most, double stall_s);

  // Whether one more may be opened when there are `open` connections, of which `opening` are not
  // accepted yet.
  bool has_room(int64_t open, int64_t opening) const;
  void note_taken(double seconds);  // a connection was accepted after `seconds`
  void note_answer();
  // Some connections were not accepted within patience_s() while `open` others are open: limits
  // connections to `open`.
  void note_stall(int64_t open);
  double patience_s() const { return patience_s_; }

 private:
  int64_t most_, limit_;
  int64_t num_answers_ = 0;  // since the limit changed
  double stall_s_, patience_s_;
  double longest_s_ = 0;  // until a connection was accepted
};

}  // namespace slimexx::reward
