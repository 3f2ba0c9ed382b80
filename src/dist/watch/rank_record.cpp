#include "dist/watch/rank_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/json.h"

namespace slimexx::dist {
namespace {

constexpr size_t kRecordBytes =
    4096;  // fixed, so that a reader never sees the tail of an older record

constexpr std::string_view kPrefix = "rank_";

std::string record_path(const std::string& directory, int rank) {
  return join_path(directory, fmt::format("{}{:03}", kPrefix, rank));
}

bool is_record_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  return name.size() >= 3 && name.find_first_not_of("0123456789") == std::string_view::npos;
}

// An open-file-description lock, not a process lock: ranks that are threads each have their own.
// The kernel releases the lock when the last process that has the file open ends for any reason.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool is_unlocked(int fd) {
  struct flock lock = whole_file();
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace

RankRecord::RankRecord(const std::string& directory, int rank)
    : path_(record_path(directory, rank)), rank_(rank) {
  make_directories(directory);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  struct flock lock = whole_file();
  is_locked_ = fd_ >= 0 && ::fcntl(fd_, F_OFD_SETLK, &lock) == 0;
  if (fd_ < 0 || !write({}, true)) {
    if (fd_ >= 0) ::close(fd_);
    throw Error(ErrorCode::kEnvironment, "cannot write the rank's heartbeat", "free space", path_);
  }
}

RankRecord::~RankRecord() {
  ::unlink(path_.c_str());  // before unlocking: an unlocked file means a dead rank
  ::close(fd_);
}

bool RankRecord::write(const ActivityView& view, bool to_server) {
  const Json call = view.call.empty() ? Json(nullptr)
                                      : Json{{"name", view.call},         {"group", view.group},
                                             {"ranks", view.num_ranks},   {"bytes", view.bytes},
                                             {"group_id", view.group_id}, {"number", view.number},
                                             {"peer", view.peer},         {"now", view.is_in_call}};
  Json memberships = Json::array();
  for (const auto& m : view.memberships) memberships.push_back({m.group, m.rank, m.num_calls});
  std::string text = Json{
      {"rank", rank_},
      {"host", host_name()},
      {"pid", ::getpid()},
      {"phase", view.phase.empty() ? "start" : view.phase},
      {"call", call},
      {"progress", view.progress},
      {"locked", is_locked_},
      {"sign", num_signs_++},
      {"looks", view.looks},
      {"work", view.work},
      {"memberships", memberships},
      {"outside",
       view.outside}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize(kRecordBytes - 1, ' ');
  text += '\n';
  if (::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return false;
  return !to_server || ::fdatasync(fd_) == 0;
}

std::optional<SeenRecord> read_record(const std::string& directory, int rank) {
  const std::string path = record_path(directory, rank);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text(kRecordBytes, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  const bool unlocked = is_unlocked(fd);
  ::close(fd);
  const Json json = Json::parse(text, nullptr, false);
  if (n != static_cast<ssize_t>(kRecordBytes) || !json.is_object()) return std::nullopt;
  SeenRecord seen;
  seen.activity.phase = json.value("phase", "");
  seen.activity.progress = json.value("progress", int64_t{0});
  if (const auto call = json.find("call"); call != json.end() && call->is_object()) {
    seen.activity.call = call->value("name", "");
    seen.activity.group = call->value("group", "");
    seen.activity.num_ranks = call->value("ranks", int64_t{0});
    seen.activity.bytes = call->value("bytes", int64_t{0});
    seen.activity.group_id = call->value("group_id", uint64_t{0});
    seen.activity.number = call->value("number", int64_t{0});
    seen.activity.peer = call->value("peer", int64_t{-1});
    seen.activity.is_in_call = call->value("now", false);
  }
  seen.activity.looks = json.value("looks", int64_t{0});
  seen.activity.work = json.value("work", int64_t{0});
  seen.activity.outside = json.value("outside", "");
  for (const Json& m : json.value("memberships", Json::array()))
    seen.activity.memberships.push_back({m.at(0), m.at(1), m.at(2)});
  seen.sign = json.value("sign", int64_t{0});
  seen.is_dead = json.value("locked", false) && unlocked && path_exists(path);
  return seen;
}

void remove_records(const std::string& directory) { remove_own_files(directory, is_record_name); }

}  // namespace slimexx::dist
