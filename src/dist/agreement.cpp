#include "slimexx/dist/agreement.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "slimexx/base/json.h"
#include "slimexx/dist/host.h"

namespace slimexx::dist {

std::string pack_error(const Error& error) {
  return Json{static_cast<int>(error.code()), error.message(), error.hint(), error.where()}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

Error unpack_error(const std::string& bytes, int rank, int num_ranks) {
  const Json json = parse_json(bytes, "error of another rank");
  return Error(
      static_cast<ErrorCode>(json.at(0).get<int>()),
      fmt::format("rank {} of {} failed: {}", rank, num_ranks, json.at(1).get<std::string>()),
      json.at(2), json.at(3));
}

void run_agreed(Collective& host, const std::function<void()>& work) {
  std::optional<Error> mine;
  try {
    work();
  } catch (const Error& error) {
    mine = error;
  }
  if (host.size() == 1) {
    if (mine) throw AgreedError(*mine);
    return;
  }
  const auto all = all_gather_bytes(host, mine ? pack_error(*mine) : "");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty())
      throw AgreedError(unpack_error(all[rank], static_cast<int>(rank), host.size()));
  }
}

}  // namespace slimexx::dist
