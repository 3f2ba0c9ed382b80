// A rank's Activity in memory shared with the other ranks of its host. It stays readable after the
// rank's process died.
#pragma once
#include <memory>
#include <string>

#include "slimexx/base/activity.h"

namespace slimexx::dist {

class RankPage {
 public:
  // Null if the host cannot allocate it.
  static std::unique_ptr<RankPage> make(const std::string& name);
  static std::unique_ptr<RankPage> open(const std::string& name);  // another rank's
  ~RankPage();
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;
  Activity& activity() const { return *activity_; }
  // Call once all have opened it: nothing remains on disk then, however the processes end.
  static void forget_name(const std::string& name);

 private:
  explicit RankPage(Activity* activity) : activity_(activity) {}
  Activity* activity_;
};

}  // namespace slimexx::dist
