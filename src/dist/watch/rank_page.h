// A rank's Activity in memory shared with the other ranks of its host. It stays readable after the
// rank's process died.
#pragma once
#include <memory>
#include <string>

#include "slimexx/base/activity.h"

namespace slimexx::dist {

class RankPage {
 public:
  // Null if the host cannot allocate the page.
  static std::unique_ptr<RankPage> make(const std::string& name);
  static std::unique_ptr<RankPage> open(const std::string& name);  // another rank's
  ~RankPage();
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;
  Activity& activity() const { return *activity_; }
  // Call after all ranks have opened the page. The system then frees the page when the last process
  // ends.
  static void forget_name(const std::string& name);

 private:
  explicit RankPage(Activity* activity) : activity_(activity) {}
  Activity* activity_;
};

}  // namespace slimexx::dist
