// Ranks as threads of this process: for tests without a launcher, and for trying a large grid on
// one host. The ranks share host memory, or one device's memory and streams (tensor.h). A copy
// queued after a rendezvous runs after all work that other ranks queued before that rendezvous, so
// the host waits for ranks only, never for the device.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/backend.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

// Shared by all ranks of the process, to wait for each other. Each rank has its own condition
// variable, so that a change wakes only the ranks that wait for it, not hundreds. When a rank
// fails, all waits throw an Error: otherwise ranks would wait for the failed rank for ever, or read
// memory that it has freed.
struct Job {
  explicit Job(int size) : changed(static_cast<size_t>(size)) {}

  std::mutex mutex;
  std::vector<std::condition_variable> changed;  // by job rank
  std::optional<int> failed_rank;                // the first that failed
  std::string failed_phase;                      // its phase; empty: none

  void wake(int rank) { changed[static_cast<size_t>(rank)].notify_all(); }
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, int rank, Condition is_met) {
    changed[static_cast<size_t>(rank)].wait(lock, [&] { return failed_rank || is_met(); });
    if (!is_met())
      throw Error(ErrorCode::kRun,
                  "rank " + std::to_string(*failed_rank) + " failed" + failed_phase,
                  "its own message says why");
  }
  void fail(int rank) {
    const std::lock_guard lock(mutex);
    if (!failed_rank) {
      failed_rank = rank;
      if (const std::string phase = slimexx::failed_phase(); !phase.empty())
        failed_phase = " in phase " + phase;
    }
    for (std::condition_variable& one : changed) one.notify_all();
  }
};

// One message in flight between two ranks.
struct Mailbox {
  char* data = nullptr;
  int64_t size_bytes = 0;
  void* queue = nullptr;    // Stream::handle of the sender
  bool is_full = false;     // posted and not yet taken
  bool is_awaited = false;  // receiver awaits a message (empty) or sender its receipt (full)
};

// State shared by the ranks of a group. Guarded by the job's mutex.
struct ThreadGroup {
  ThreadGroup(std::shared_ptr<Job> job_, std::vector<int> members_)
      : job(std::move(job_)),
        members(std::move(members_)),
        size(static_cast<int>(members.size())),
        pointers(members.size()),
        queues(pointers.size()),
        devices(pointers.size()),
        num_awaited(pointers.size()),
        places(pointers.size()),
        mailboxes(pointers.size() * pointers.size()) {}

  struct Place {
    int color = 0, key = 0;
  };
  std::shared_ptr<Job> job;
  std::vector<int> members;  // job ranks, by rank in this group
  int size;
  int num_arrived = 0;
  int64_t num_barriers = 0;  // barriers that all ranks have passed
  std::vector<char*> pointers;
  std::vector<void*> queues;            // Stream::handle of each rank
  std::vector<tensor::Device> devices;  // of each rank, for on_device(), which makes `twin`
  std::shared_ptr<ThreadGroup> twin;
  std::vector<int> num_awaited;  // number of mailboxes that each rank waits for
  std::vector<Place> places;     // arguments of a split
  std::map<int, std::shared_ptr<ThreadGroup>> splits;  // by color
  std::shared_ptr<std::atomic<int64_t>> counter;
  std::vector<Mailbox> mailboxes;  // [from * size + to]
};

class AtomicCounter : public SharedCounter {
 public:
  explicit AtomicCounter(std::shared_ptr<std::atomic<int64_t>> value) : value_(std::move(value)) {}
  int64_t fetch_add(int64_t amount) override { return value_->fetch_add(amount); }

 private:
  std::shared_ptr<std::atomic<int64_t>> value_;
};

class ThreadBackend : public Backend {
 public:
  ThreadBackend(std::shared_ptr<ThreadGroup> group, int rank, tensor::Device device)
      : group_(std::move(group)), rank_(rank), device_(device) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size; }
  tensor::Device device() const override { return device_; }
  bool is_queued() const override { return !device_.is_cpu(); }

  void barrier() override {
    if (!device_.is_cpu()) tensor::synchronize(tensor::compute_stream(device_));
    meet();
  }

  void broadcast(tensor::Stream stream, char* data, int64_t size_bytes, int root) override {
    const auto pointers = publish(stream, data);
    if (root != rank_) copy(stream, data, pointers[static_cast<size_t>(root)], size_bytes);
    meet();
  }

  void all_gather_ranges(tensor::Stream stream, char* data,
                         std::span<const Range> ranges) override {
    const auto pointers = publish(stream, data);
    for (size_t i = 0; i < ranges.size(); ++i) {
      const size_t owner = i % pointers.size();
      const Range& range = ranges[i];
      if (owner == static_cast<size_t>(rank_) || range.size() == 0) continue;
      copy(stream, data + range.begin, pointers[owner] + range.begin, range.size());
    }
    meet();
  }

  void exchange(tensor::Stream stream, std::span<const Message> sends,
                std::span<const Message> receives) override {
    if (sends.empty() && receives.empty()) return;
    std::unique_lock lock(group_->job->mutex);
    for (const Message& m : sends) {
      Mailbox& box = mailbox(rank_, m.peer);
      box.data = m.data;
      box.size_bytes = m.size_bytes;
      box.queue = stream.handle;
      turn(box, m.peer);
    }
    for (const Message& m : receives) await(mailbox(m.peer, rank_), true);
    wait_for_mailboxes(lock);
    std::vector<char*> posted;
    for (const Message& m : receives) {
      const Mailbox& box = mailbox(m.peer, rank_);
      SLX_CHECK(box.size_bytes == m.size_bytes && box.queue == stream.handle,
                "the peer sends {} bytes, but {} are expected, or it uses another stream",
                box.size_bytes, m.size_bytes);
      posted.push_back(box.data);
    }
    lock.unlock();
    for (size_t i = 0; i < receives.size(); ++i)
      copy(stream, receives[i].data, posted[i], receives[i].size_bytes);
    lock.lock();
    for (const Message& m : receives) turn(mailbox(m.peer, rank_), m.peer);
    for (const Message& m : sends) await(mailbox(rank_, m.peer), false);
    wait_for_mailboxes(lock);
  }

  // Maxima are computed on the host: they are used for small tensors only.
  void combine(tensor::Stream stream, const Terms& terms, Combine combine) override {
    if (device_.is_cpu()) return Backend::combine(stream, terms, combine);
    if (combine == Combine::kSum) return sum_on_device(stream, terms);
    const int64_t bytes = terms.n * tensor::dtype_bytes(terms.dtype);
    std::vector<char> own(static_cast<size_t>(bytes)), others(own.size() * num_others());
    tensor::download(stream, own.data(), view(terms.own, bytes));
    tensor::download(stream, others.data(),
                     view(const_cast<char*>(terms.others), std::ssize(others)));
    Terms on_host = terms;
    on_host.own = own.data();
    on_host.others = others.data();
    Backend::combine({}, on_host, combine);
    tensor::upload(stream, view(terms.own, bytes), own.data());
  }

  std::unique_ptr<Backend> split(int color, int key) override {
    std::unique_lock lock(group_->job->mutex);
    group_->places[static_cast<size_t>(rank_)] = {color, key};
    pass_barrier(lock);
    std::vector<int> members;
    for (int r = 0; r < group_->size; ++r)
      if (place(r).color == color) members.push_back(r);
    std::ranges::stable_sort(members, {}, [&](int r) { return place(r).key; });
    auto& part = group_->splits[color];
    if (!part) {
      std::vector<int> of_job;
      for (const int r : members) of_job.push_back(member(r));
      part = std::make_shared<ThreadGroup>(group_->job, std::move(of_job));
    }
    const auto mine = part;
    pass_barrier(lock);  // all ranks have read the splits and hold their own group
    group_->splits.clear();
    if (members.size() == 1) return nullptr;
    const auto own = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<ThreadBackend>(mine, static_cast<int>(own), device_);
  }

  std::unique_ptr<Backend> on_device(tensor::Device device) override {
    std::unique_lock lock(group_->job->mutex);
    group_->devices[static_cast<size_t>(rank_)] = device;
    if (rank_ == 0) group_->twin = std::make_shared<ThreadGroup>(group_->job, group_->members);
    pass_barrier(lock);
    const bool is_shared = std::ranges::count(group_->devices, device) == group_->size;
    auto backend = std::make_unique<ThreadBackend>(group_->twin, rank_, device);
    pass_barrier(lock);
    if (!is_shared) return nullptr;
    return backend;
  }

  std::unique_ptr<SharedCounter> make_counter() override {
    std::unique_lock lock(group_->job->mutex);
    if (rank_ == 0) group_->counter = std::make_shared<std::atomic<int64_t>>(0);
    pass_barrier(lock);
    auto counter = std::make_unique<AtomicCounter>(group_->counter);
    pass_barrier(lock);
    return counter;
  }

 private:
  Mailbox& mailbox(int from, int to) const {
    return group_
        ->mailboxes[static_cast<size_t>(from) * group_->pointers.size() + static_cast<size_t>(to)];
  }
  // Toggles the mailbox between empty and full. Wakes the other rank if this was the last mailbox
  // that it waited for.
  void turn(Mailbox& box, int other) {
    box.is_full = !box.is_full;
    if (!std::exchange(box.is_awaited, false)) return;
    if (--group_->num_awaited[static_cast<size_t>(other)] == 0) wake(other);
  }
  void await(Mailbox& box, bool full) {
    if (box.is_full == full) return;
    box.is_awaited = true;
    ++group_->num_awaited[static_cast<size_t>(rank_)];
  }
  // Waits once for all mailboxes: waiting for each alone would wake the rank hundreds of times.
  void wait_for_mailboxes(std::unique_lock<std::mutex>& lock) {
    wait(lock, [&] { return group_->num_awaited[static_cast<size_t>(rank_)] == 0; });
  }
  const ThreadGroup::Place& place(int rank) const {
    return group_->places[static_cast<size_t>(rank)];
  }
  int member(int rank) const { return group_->members[static_cast<size_t>(rank)]; }
  void wake(int rank) { group_->job->wake(member(rank)); }
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition is_met) {
    group_->job->wait(lock, member(rank_), is_met);
  }
  void pass_barrier(std::unique_lock<std::mutex>& lock) {
    const int64_t number = group_->num_barriers;
    if (++group_->num_arrived == group_->size) {
      group_->num_arrived = 0;
      ++group_->num_barriers;
      for (const int rank : group_->members) group_->job->wake(rank);
    }
    wait(lock, [&] { return group_->num_barriers > number; });
  }
  void meet() {
    std::unique_lock lock(group_->job->mutex);
    pass_barrier(lock);
  }
  // Returns all ranks' pointers. They are valid until the next barrier, which the caller must pass.
  std::vector<char*> publish(tensor::Stream stream, char* data) {
    std::unique_lock lock(group_->job->mutex);
    group_->pointers[static_cast<size_t>(rank_)] = data;
    group_->queues[static_cast<size_t>(rank_)] = stream.handle;
    pass_barrier(lock);
    SLX_CHECK(std::ranges::count(group_->queues, stream.handle) == group_->size,
              "ranks of one device call a collective on several streams");
    return group_->pointers;
  }
  size_t num_others() const { return group_->pointers.size() - 1; }
  tensor::Tensor view(char* data, int64_t size_bytes) const {
    return {data, tensor::DType::kU8, device_, {size_bytes}};
  }
  void copy(tensor::Stream stream, char* to, char* from, int64_t size_bytes) const {
    tensor::copy_bytes(stream, view(to, size_bytes), view(from, size_bytes));
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  tensor::Device device_;
};

}  // namespace

void run_thread_ranks(int size, const std::function<void(Collective&)>& body) {
  SLX_CHECK_GE(size, 1);
  const auto job = std::make_shared<Job>(size);
  std::vector<int> all_ranks(static_cast<size_t>(size));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(job, all_ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Collective all(
              size == 1 ? nullptr : std::make_unique<ThreadBackend>(group, rank, tensor::Device{}),
              Collective::kAllRanks);
          body(all);
        } catch (...) {
          errors[static_cast<size_t>(rank)] = std::current_exception();
          job->fail(rank);
        }
      });
    }
  }
  if (job->failed_rank) std::rethrow_exception(errors[static_cast<size_t>(*job->failed_rank)]);
}

}  // namespace slimexx::dist
