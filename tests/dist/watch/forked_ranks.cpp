#include "dist/watch/forked_ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>

#include "dist/backend.h"

namespace slimexx::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Supports barriers, broadcasts and gathers, so that ranks can wait for each other. A send or
// receive waits forever.
class ForkedBackend : public Backend {
 public:
  ForkedBackend(ForkedState& state, int rank, int size) : state_(state), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  tensor::Device device() const override { return {}; }
  void barrier() override {
    const int number = state_.num_barriers;
    if (++state_.num_arrived == size_) {
      state_.num_arrived = 0;
      ++state_.num_barriers;
    }
    while (state_.num_barriers == number) ::usleep(500);
  }
  void broadcast(tensor::Stream, char* data, int64_t size_bytes, int root) override {
    const auto n = static_cast<size_t>(size_bytes);
    if (n > kForkedBytes) throw std::runtime_error("broadcast of too many bytes");
    if (rank_ == root) std::memcpy(state_.bytes, data, n);
    barrier();
    if (rank_ != root) std::memcpy(data, state_.bytes, n);
    barrier();
  }
  void all_gather_ranges(tensor::Stream, char* data, std::span<const Range> ranges) override {
    const auto copy = [&](char* to, const char* from, const Range& range) {
      if (range.end > static_cast<int64_t>(kForkedBytes))
        throw std::runtime_error("all_gather of too many bytes");
      std::memcpy(to + range.begin, from + range.begin, static_cast<size_t>(range.size()));
    };
    for (size_t i = 0; i < ranges.size(); ++i)
      if (i % static_cast<size_t>(size_) == static_cast<size_t>(rank_))
        copy(state_.bytes, data, ranges[i]);
    barrier();
    for (const Range& range : ranges) copy(data, state_.bytes, range);
    barrier();
  }
  void exchange(tensor::Stream, std::span<const Message>, std::span<const Message>) override {
    for (;;) ::pause();  // no message ever arrives
  }
  std::unique_ptr<Backend> split(int, int) override { return refuse(); }
  std::unique_ptr<SharedCounter> make_counter() override {
    refuse();
    return nullptr;
  }

 private:
  static std::nullptr_t refuse() { throw std::runtime_error("not for forked ranks"); }

  ForkedState& state_;
  int rank_, size_;
};

}  // namespace

ForkedRanks::ForkedRanks(int size, const std::function<void(Collective&, ForkedState&)>& body) {
  void* memory = ::mmap(nullptr, sizeof(ForkedState), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || size > kMostForkedRanks)
    throw std::runtime_error("no memory for forked ranks");
  state_ = new (memory) ForkedState;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      try {
        Collective ranks(std::make_unique<ForkedBackend>(*state_, rank, size),
                         Collective::kAllRanks);
        body(ranks, *state_);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ::munmap(state_, sizeof(ForkedState));
}

bool ForkedRanks::wait_until_ready() {
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (state_->num_ready < static_cast<int>(pids_.size())) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void ForkedRanks::signal(int rank, int number) { ::kill(pids_[static_cast<size_t>(rank)], number); }

int ForkedRanks::wait(int rank, double seconds) {
  pid_t& pid = pids_[static_cast<size_t>(rank)];
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace slimexx::dist
