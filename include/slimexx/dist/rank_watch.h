// Notices a rank that has stopped without ending (SIGSTOP, a host that hangs): the others wait for
// it in a collective for ever. Every rank shows a sign of life in a folder that all can read, and
// looks for the others'. A rank that merely works for long shows its signs and is left alone.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

struct RankWatchOptions {
  std::string directory;  // made, and removed at the end
  double warn_s = 60;     // of silence, then a warning names the rank; 0: never
  double limit_s = 600;   // of silence, then the process ends with status 4; 0: never
};

class RankWatch {
 public:
  // `on_limit` gets the reason just before the process ends, on the watch's own thread: the main
  // one waits for the silent rank. Collective.
  RankWatch(Collective& host, RankWatchOptions options,
            std::function<void(const std::string&)> on_limit);
  ~RankWatch();  // waits for nobody
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::dist
