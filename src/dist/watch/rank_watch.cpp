#include "slimexx/dist/rank_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dist/watch/hang_judge.h"
#include "dist/watch/process_state.h"
#include "dist/watch/rank_page.h"
#include "dist/watch/rank_peer.h"
#include "dist/watch/rank_record.h"
#include "dist/watch/thread_work.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"

namespace slimexx::dist {
namespace {

// Seconds between looks. A late look, on a busy host, counts as the time since the previous look,
// but at most kMostLook: time does not count while this process itself is stopped.
constexpr double kInterval = 0.1, kMostLook = 0.3;
constexpr double kHangInterval = 0.5;  // between looks at threads
constexpr double kFarInterval = 1;  // between reads of other hosts' records: spares the file server
constexpr double kEnd = 0.5;  // after the launcher begins to end all ranks, deaths do not count
// Time for another rank, or the launcher, to print its message.
constexpr auto kPatience = std::chrono::milliseconds(700);

}  // namespace

struct RankWatch::Impl {
  RankWatchOptions options;
  std::function<bool(const FirstCause&)> claim;
  std::function<bool()> is_ending;
  int own_rank = 0;
  bool are_threads = false;  // all ranks are threads of one process: only rank 0 looks, and reads
                             // the pages of the others
  std::unique_ptr<RankPage> own_page;
  Activity* own = nullptr;  // activity of the thread that constructed this
  std::vector<Peer> peers;  // by rank
  int far_watcher = 0;      // first rank that is not on rank 0's host; it watches rank 0
  std::string directory;
  std::unique_ptr<RankRecord> record;
  std::chrono::steady_clock::time_point last_look;
  // Seconds that count for the last look, and for the last look at other hosts.
  double look_s = 0, far_look_s = 0;
  double since_far_look_s = 0, since_hang_look_s = 0;
  OwnLooks own_looks;
  HangJudge judge;
  double end_s = 0;               // seconds since the launcher began to end all ranks
  std::vector<int64_t> progress;  // by rank, at the last far look
  double idle_s = 0, next_wait_warning = 0;

  std::mutex mutex;  // guards all members above that change while the thread runs
  std::condition_variable ending;
  bool is_done = false;
  std::thread thread;

  void meet(Collective& host);
  bool is_near(const Peer& peer) const { return peer.page != nullptr && peer.pid != ::getpid(); }
  bool is_far(const Peer& peer) const { return peer.page == nullptr && peer.rank != own_rank; }
  ActivityView activity_of(const Peer& peer) const;
  bool warns_of(const Peer& peer) const;
  void look();
  void look_at_all();
  void look_near(Peer& peer);
  void look_far(Peer& peer, bool has_moved);
  bool look_at_progress();
  void look_for_hang(double seconds);
  std::vector<ActivityView> view_all() const;
  void report_wait();
  void count_stop(Peer& peer, double seconds, double warn_s, double limit_s,
                  const std::string& state);
  void count_sign(Peer& peer);
  [[noreturn]] void end_run(const Peer& peer, const std::string& state, const std::string& hint,
                            bool launcher_knows = false, const std::string& more = {});
  void run();
};

ActivityView RankWatch::Impl::activity_of(const Peer& peer) const {
  if (peer.rank == own_rank) return view_activity(*own);
  return peer.page != nullptr ? view_activity(peer.page->activity()) : peer.seen;
}

std::vector<ActivityView> RankWatch::Impl::view_all() const {
  std::vector<ActivityView> views;
  for (const Peer& peer : peers) views.push_back(activity_of(peer));
  return views;
}

// Whether this rank reports about `peer`. On the peer's host, the first rank that is not the peer
// reports. From another host, only one rank watches the peer, and it reports.
bool RankWatch::Impl::warns_of(const Peer& peer) const {
  if (is_far(peer)) return true;
  const auto first = std::ranges::find_if(peers, [&](const Peer& other) {
    return other.rank != peer.rank && (other.rank == own_rank || is_near(other));
  });
  return first->rank == own_rank;
}

// All ranks exchange their descriptions; each opens the pages of the ranks on its host.
void RankWatch::Impl::meet(Collective& host) {
  own_rank = host.rank();
  std::string name = fmt::format("/slimexx_{}_{}_{}", ::getpid(), start_time(::getpid()), own_rank);
  own_page = RankPage::make(name);
  if (own_page == nullptr) name.clear();
  const std::string space = options.process_space.empty() ? process_space() : options.process_space;
  const auto all = all_gather_bytes(host, describe_self(space, name));
  far_watcher = -1;
  for (int rank = 0; rank < host.size(); ++rank) {
    peers.push_back(read_description(all[static_cast<size_t>(rank)], rank));
    if (far_watcher < 0 && peers[static_cast<size_t>(rank)].space != peers[0].space)
      far_watcher = rank;
  }
  are_threads = std::ranges::all_of(
      peers, [&](const Peer& p) { return p.pid == ::getpid() && p.space == peers[0].space; });
  for (Peer& peer : peers) {
    const bool is_seen = peer.rank != own_rank && peer.space == space && !peer.page_name.empty();
    if (is_seen && (!are_threads || own_rank == 0) &&
        process_state(peer.pid, peer.start) != ProcessState::kGone)
      peer.page = RankPage::open(peer.page_name);
  }
  host.barrier();
  if (own_page != nullptr) {
    RankPage::forget_name(name);
    keep_activity_at(&own_page->activity());
  }
  own = &own_activity();
  for (const Peer& peer : peers) {
    if (peer.rank == own_rank) own_looks.add_rank(peer.tid, own);
    if (peer.page != nullptr && are_threads) own_looks.add_rank(peer.tid, &peer.page->activity());
  }
}

void RankWatch::Impl::end_run(const Peer& peer, const std::string& state, const std::string& hint,
                              bool launcher_knows, const std::string& more) {
  const ActivityView view = activity_of(peer);
  const std::string what = fmt::format("rank {} {} {}, in {}{}", peer.rank, state, peer.place(),
                                       describe_activity(view), more);
  bool is_first = true;
  try {
    is_first = claim({.rank = peer.rank,
                      .host = peer.host,
                      .phase = view.phase.empty() ? "start" : view.phase,
                      .call = view.is_in_call ? view.call : "",
                      .what = what});
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
  if (is_first) log_error("{}", Error(ErrorCode::kRun, what, hint).what());
  if (!is_first || launcher_knows) std::this_thread::sleep_for(kPatience);
  // Only the main thread may call MPI, and it is blocked. So exit: the launcher then ends the other
  // ranks.
  std::_Exit(exit_status(ErrorCode::kRun));
}

// Records one more look without a sign of life from `peer`.
void RankWatch::Impl::count_stop(Peer& peer, double seconds, double warn_s, double limit_s,
                                 const std::string& state) {
  const double silence_s = peer.silence_s += seconds;
  const std::string what = fmt::format("{} for {:.0f} s", state, silence_s);
  if (!peer.is_silent && warn_s > 0 && silence_s >= warn_s) {
    peer.is_silent = true;
    if (warns_of(peer))
      log_warn("rank {} {} {}, in {}", peer.rank, what, peer.place(),
               describe_activity(activity_of(peer)));
  }
  if (limit_s > 0 && silence_s >= limit_s)
    end_run(peer, what,
            fmt::format("check that host, then continue the run with --resume; the limit is "
                        "parallel.{}_silence_limit_s",
                        is_far(peer) ? "host" : "rank"));
}

void RankWatch::Impl::count_sign(Peer& peer) {
  if (peer.is_silent && warns_of(peer)) log_warn("rank {} is back", peer.rank);
  peer.is_silent = false;
  peer.silence_s = 0;
}

void RankWatch::Impl::look_near(Peer& peer) {
  switch (process_state(peer.pid, peer.start)) {
    case ProcessState::kRuns:
      return count_sign(peer);
    case ProcessState::kStopped:
      return count_stop(peer, look_s, options.warn_s, options.limit_s, "has been stopped");
    case ProcessState::kGone:
      peer.has_left = peer.page->activity().has_left != 0;
      if (peer.has_left || end_s > kEnd) return;
      end_run(peer, "died",
              "it was killed or crashed: see its last log lines and the logs of the launcher and "
              "the kernel (out of memory), then continue the run with --resume",
              true);
  }
}

// Reads through a shared file system, which may pause for all ranks. So silence counts only while
// this rank makes no progress either.
void RankWatch::Impl::look_far(Peer& peer, bool has_moved) {
  const auto seen = read_record(directory, peer.rank);
  if (!seen) {  // the rank has ended normally, or the folder is gone: do not judge
    peer.silence_s = 0;
    return;
  }
  peer.seen = seen->activity;
  if (seen->is_dead && end_s <= kEnd)
    end_run(peer, "died", "check that host, then continue the run with --resume", true);
  if (seen->sign != peer.sign) {
    peer.sign = seen->sign;
    return count_sign(peer);
  }
  if (has_moved) peer.silence_s = 0;
  count_stop(peer, far_look_s, options.host_limit_s / 2, options.host_limit_s,
             "has shown no sign of life");
}

// Returns whether this rank has made progress. Updates idle_s: on rank 0, the time since any rank
// made progress.
bool RankWatch::Impl::look_at_progress() {
  bool own_moved = false, any_moved = false;
  for (const Peer& peer : peers) {
    const int64_t now = activity_of(peer).progress;
    int64_t& before = progress[static_cast<size_t>(peer.rank)];
    const bool has_moved = now != before;
    any_moved |= has_moved;
    if (peer.rank == own_rank) own_moved = has_moved;
    before = now;
  }
  idle_s = any_moved ? 0 : idle_s + far_look_s;
  if (any_moved) next_wait_warning = options.wait_warn_s;
  return own_moved;
}

// Ends the run if the activity of all ranks shows a hang. With ranks on other hosts, whose records
// may be late, the limit is at least the limit for a silent host.
void RankWatch::Impl::look_for_hang(double seconds) {
  const bool has_far = std::ranges::any_of(peers, [&](const Peer& p) { return is_far(p); });
  const double limit_s =
      has_far ? std::max(options.hang_limit_s, options.host_limit_s) : options.hang_limit_s;
  const auto views = view_all();
  const auto hang = judge.look(views, seconds, limit_s);
  if (!hang) return;
  log_warn("all ranks wait for each other or make no progress:{}", list_ranks(peers, views));
  end_run(peers[static_cast<size_t>(hang->rank)], hang->state,
          "inspect its threads (gdb -p), then continue the run with --resume; the limit is "
          "parallel.hang_limit_s",
          false, hang->others);
}

// Does nothing if some rank's record has never been read: its host may have another folder under
// this path.
void RankWatch::Impl::report_wait() {
  if (std::ranges::any_of(peers, [&](const Peer& p) { return is_far(p) && p.sign < 0; })) return;
  if (options.wait_warn_s > 0 && idle_s >= next_wait_warning) {
    next_wait_warning = 2 * idle_s;
    log_warn("no rank has made progress for {:.0f} s:{}", idle_s, list_ranks(peers, view_all()));
  }
  if (options.wait_limit_s <= 0 || idle_s < options.wait_limit_s) return;
  const auto culprit =
      std::ranges::find_if(peers, [&](const Peer& peer) { return !activity_of(peer).is_in_call; });
  end_run(culprit == peers.end() ? peers[0] : *culprit,
          fmt::format("{}, and no rank has made progress for {:.0f} s",
                      culprit == peers.end() ? "waits, like all others" : "hangs", idle_s),
          "the log says what every rank did; if a rank needs this long in one call, raise "
          "parallel.rank_wait_limit_s");
}

// The caller holds the mutex.
void RankWatch::Impl::look() {
  const auto now = std::chrono::steady_clock::now();
  look_s = std::min(std::chrono::duration<double>(now - last_look).count(), kMostLook);
  last_look = now;
  since_far_look_s += look_s;
  since_hang_look_s += look_s;
  const bool is_far_look = since_far_look_s >= kFarInterval;
  if (is_far_look) far_look_s = std::exchange(since_far_look_s, 0);
  if (is_ending()) end_s += look_s;
  for (Peer& peer : peers)
    if (is_near(peer) && !peer.has_left) look_near(peer);
  const bool has_far = std::ranges::any_of(peers, [&](const Peer& p) { return is_far(p); });
  // If this rank cannot write its own record, skip the check: the file system is the likely cause
  // for all ranks.
  const bool is_shown =
      record == nullptr || record->write(view_activity(*own), is_far_look && has_far);
  if (!is_shown) return;
  if (is_far_look) look_at_all();
  if (options.hang_limit_s <= 0 || since_hang_look_s < kHangInterval) return;
  own_looks.note();
  const double seconds = std::exchange(since_hang_look_s, 0);
  if (own_rank == 0 && end_s == 0) look_for_hang(seconds);
}

// Called once per kFarInterval.
void RankWatch::Impl::look_at_all() {
  const bool has_moved = look_at_progress();
  for (Peer& peer : peers)
    if (record != nullptr && is_far(peer) &&
        (own_rank == 0 || (own_rank == far_watcher && peer.rank == 0)))
      look_far(peer, has_moved);
  if (own_rank == 0) report_wait();
}

void RankWatch::Impl::run() {
  std::unique_lock lock(mutex);
  while (
      !ending.wait_for(lock, std::chrono::duration<double>(kInterval), [&] { return is_done; })) {
    try {
      look();
    } catch (const std::exception& error) {  // mostly an unreadable record
      log_debug("checking the ranks failed: {}", error.what());
    }
  }
}

RankWatch::RankWatch(Collective& host, RankWatchOptions options,
                     std::function<bool(const FirstCause&)> claim, std::function<bool()> is_ending)
    : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.options = std::move(options);
  i.claim = std::move(claim);
  i.is_ending = std::move(is_ending);
  i.next_wait_warning = i.options.wait_warn_s;
  if (host.size() == 1) return;
  i.meet(host);
  i.progress.assign(i.peers.size(), 0);
  if (i.are_threads && i.own_rank != 0) return;
  i.last_look = std::chrono::steady_clock::now();
  i.thread = std::thread([&i, rank = thread_rank()] {
    const ThreadRankScope scope(rank);
    i.run();
  });
}

void RankWatch::show_records(Collective& host, const std::string& directory) {
  Impl& i = *impl_;
  if (i.peers.empty() || i.are_threads) return;
  run_agreed(host, [&] {
    if (i.own_rank == 0) remove_records(directory);
  });
  auto record = std::make_unique<RankRecord>(directory, i.own_rank);
  const std::lock_guard lock(i.mutex);
  i.directory = directory;
  i.record = std::move(record);
}

void RankWatch::look_now() {
  Impl& i = *impl_;
  const std::lock_guard lock(i.mutex);
  for (Peer& peer : i.peers)
    if (i.is_near(peer) && !peer.has_left) i.look_near(peer);
}

RankWatch::~RankWatch() {
  Impl& i = *impl_;
  if (i.own_page != nullptr) i.own_page->activity().has_left = 1;
  if (i.thread.joinable()) {
    {
      const std::lock_guard lock(i.mutex);
      i.is_done = true;
    }
    i.ending.notify_all();
    i.thread.join();
  }
  keep_activity_at(nullptr);
  if (i.record == nullptr) return;
  i.record.reset();
  ::rmdir(i.directory.c_str());  // succeeds once no file is left in the folder
}

}  // namespace slimexx::dist
