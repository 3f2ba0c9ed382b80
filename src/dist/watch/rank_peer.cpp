#include "dist/watch/rank_peer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "dist/watch/process_state.h"
#include "dist/watch/thread_work.h"
#include "slimexx/base/json.h"

namespace slimexx::dist {

std::string Peer::place() const { return fmt::format("(host {}, process {})", host, pid); }

std::string describe_self(const std::string& space, const std::string& page_name) {
  return Json{{"host", host_name()}, {"pid", ::getpid()},
              {"tid", own_tid()},    {"start", start_time(::getpid())},
              {"space", space},      {"page", page_name}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Peer read_description(const std::string& text, int rank) {
  const Json json = parse_json(text, "a rank's description of itself");
  Peer peer;
  peer.rank = rank;
  peer.pid = json.at("pid");
  peer.tid = json.at("tid");
  peer.start = json.at("start");
  peer.host = json.at("host");
  peer.space = json.at("space");
  peer.page_name = json.at("page");
  return peer;
}

}  // namespace slimexx::dist
