#include "slimexx/dist/rank_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"

namespace slimexx::dist {
namespace fs = std::filesystem;
namespace {

constexpr double kLeastInterval = 0.1, kGreatestInterval = 5;  // seconds between signs of life
constexpr size_t kSignBytes = 128;

// What is known of another rank.
struct Peer {
  int rank = 0;
  std::string sign = {};  // the last that was read
  int64_t num_looks = 0;  // since it changed. Time is counted in looks: while this process itself
                          // is stopped, or its host sleeps, nobody ages
  bool is_silent = false;
};

double choose_interval(const RankWatchOptions& o) {
  double shortest = kGreatestInterval * 6;
  for (const double limit : {o.warn_s, o.limit_s})
    if (limit > 0) shortest = std::min(shortest, limit);
  return std::clamp(shortest / 6, kLeastInterval, kGreatestInterval);
}

std::string path_of(const std::string& directory, int rank) {
  return join_path(directory, fmt::format("rank_{:03}", rank));
}

// Empty if it cannot be read.
std::string read_sign(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[kSignBytes];
  const ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
  ::close(fd);
  return n == static_cast<ssize_t>(kSignBytes) ? std::string(buffer, kSignBytes) : std::string();
}

}  // namespace

struct RankWatch::Impl {
  RankWatchOptions options;
  std::function<void(const std::string&)> on_limit;
  double interval = 0;
  int own_rank = 0, own_fd = -1;
  int64_t num_signs = 0;
  std::vector<Peer> peers;
  std::mutex mutex;
  std::condition_variable ending;
  bool is_ending = false;
  std::thread thread;

  bool show_sign();
  void look_at(Peer& peer);
  void run();
};

// One write over the same bytes: no reader sees a part of it, and a full disk has room for it.
bool RankWatch::Impl::show_sign() {
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  std::string sign = fmt::format("host {}, process {}; sign {}", host, ::getpid(), num_signs++);
  sign.resize(kSignBytes, ' ');
  return ::pwrite(own_fd, sign.data(), sign.size(), 0) == static_cast<ssize_t>(kSignBytes);
}

void RankWatch::Impl::look_at(Peer& peer) {
  const std::string sign = read_sign(path_of(options.directory, peer.rank));
  if (sign.empty()) {  // it has ended well, or the folder is gone: no ground to judge on
    peer.num_looks = 0;
    return;
  }
  if (sign != peer.sign) {
    if (peer.is_silent) log_warn("rank {} shows signs of life again", peer.rank);
    peer = {.rank = peer.rank, .sign = sign};
    return;
  }
  const double silence_s = static_cast<double>(++peer.num_looks) * interval;
  const std::string what = fmt::format(
      "rank {} has shown no sign of life for {:.0f} s ({}): it, or its host, is stopped", peer.rank,
      silence_s, sign.substr(0, sign.find(';')));
  if (!peer.is_silent && options.warn_s > 0 && silence_s >= options.warn_s) {
    peer.is_silent = true;
    log_warn("{}", what);
  }
  if (options.limit_s <= 0 || silence_s < options.limit_s) return;
  on_limit(what);
  const Error error(ErrorCode::kRun, what,
                    "look at that host; then continue the run from its newest checkpoint by "
                    "--resume",
                    "parallel.rank_silence_limit_s");
  log_error("{}", error.what());
  // MPI is the main thread's, and that one waits: the launcher ends the ranks when one is gone.
  std::_Exit(exit_status(ErrorCode::kRun));
}

void RankWatch::Impl::run() {
  std::unique_lock lock(mutex);
  while (
      !ending.wait_for(lock, std::chrono::duration<double>(interval), [&] { return is_ending; })) {
    // Who cannot show that he lives must not judge the others: they share his trouble.
    if (!show_sign()) continue;
    for (Peer& peer : peers) look_at(peer);
  }
}

RankWatch::RankWatch(Collective& host, RankWatchOptions options,
                     std::function<void(const std::string&)> on_limit)
    : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.options = std::move(options);
  i.on_limit = std::move(on_limit);
  if (host.size() == 1 || (i.options.warn_s <= 0 && i.options.limit_s <= 0)) return;
  i.interval = choose_interval(i.options);
  i.own_rank = host.rank();
  std::error_code ignored;
  if (i.own_rank == 0) fs::remove_all(i.options.directory, ignored);  // of a run that was killed
  host.barrier();
  make_directories(i.options.directory);
  i.own_fd = ::open(path_of(i.options.directory, i.own_rank).c_str(),
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (i.own_fd < 0 || !i.show_sign()) {
    throw Error(ErrorCode::kEnvironment, "cannot write the rank's sign of life",
                "free space, or set both parallel.rank_silence_warn_s and "
                "parallel.rank_silence_limit_s to 0",
                i.options.directory);
  }
  host.barrier();
  for (int rank = 0; rank < host.size(); ++rank)
    if (rank != i.own_rank) i.peers.push_back({.rank = rank});
  i.thread = std::thread([&i, rank = thread_rank()] {
    const ThreadRankScope scope(rank);
    i.run();
  });
}

RankWatch::~RankWatch() {
  Impl& i = *impl_;
  if (i.thread.joinable()) {
    {
      const std::lock_guard lock(i.mutex);
      i.is_ending = true;
    }
    i.ending.notify_all();
    i.thread.join();
  }
  if (i.own_fd < 0) return;
  ::close(i.own_fd);
  std::error_code ignored;
  fs::remove(path_of(i.options.directory, i.own_rank), ignored);
  fs::remove(i.options.directory, ignored);  // the last one's succeeds
}

}  // namespace slimexx::dist
