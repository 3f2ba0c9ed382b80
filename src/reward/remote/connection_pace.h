// How many connections to a service are opened, and when one that is not taken is tried anew. A
// service with a short queue lets those beyond it wait for TCP's next try, which comes after one
// second, then after two, four, ...
#pragma once
#include <cstdint>

namespace slimexx::reward {

class ConnectionPace {
 public:
  // At most `most` connections; one is waited for no longer than `stall_s` while others are taken.
  ConnectionPace(int64_t most, double stall_s);

  // Whether another may be opened beside `open`, of which `opening` are not taken yet.
  bool has_room(int64_t open, int64_t opening) const;
  void note_taken(double seconds);  // a connection was, after that time
  void note_answer();
  // Some were not taken in patience_s(), and `open` others are open: no more are opened than that.
  void note_stall(int64_t open);
  double patience_s() const { return patience_s_; }

 private:
  int64_t most_, limit_;
  int64_t num_answers_ = 0;  // since the limit changed
  double stall_s_, patience_s_;
  double longest_s_ = 0;  // until a connection was taken
};

}  // namespace slimexx::reward
