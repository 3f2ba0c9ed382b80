// Reports a long call while it is running, from a thread of its own.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace slimexx::dist {

class SlowCallNotice {
 public:
  using Seconds = std::chrono::duration<double>;
  // Calls `say` after every `period`, with the time since construction, until destruction.
  SlowCallNotice(Seconds period, std::function<void(Seconds waited)> say)
      : thread_([this, period, say = std::move(say)] { watch(period, say); }) {}
  ~SlowCallNotice() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }
  SlowCallNotice(const SlowCallNotice&) = delete;
  SlowCallNotice& operator=(const SlowCallNotice&) = delete;

 private:
  void watch(Seconds period, const std::function<void(Seconds)>& say) {
    std::unique_lock lock(mutex_);
    for (int periods = 1; !ended_.wait_for(lock, period, [this] { return has_ended_; }); ++periods)
      say(periods * period);
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace slimexx::dist
