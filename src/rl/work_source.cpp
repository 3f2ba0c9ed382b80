#include "work_source.h"

#include <thread>

#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kStop = int64_t{1} << 32;
constexpr auto kInterval = std::chrono::milliseconds(20);
// What a leader tells: the number of a group, 0 or 1, or one of these.
constexpr int64_t kNoGroup = -1, kDone = -2, kFailed = -3;

}  // namespace

SharedQueue::SharedQueue(dist::Collective& world, int64_t num_groups,
                         std::function<bool()> should_stop)
    : world_(world),
      num_groups_(num_groups),
      should_stop_(std::move(should_stop)),
      queue_(world.make_counter()),
      state_(should_stop_ ? world.make_counter() : nullptr) {}

bool SharedQueue::is_stopped() {
  const auto now = std::chrono::steady_clock::now();
  if (!state_ || is_stopped_ || now < next_exchange_) return is_stopped_;
  next_exchange_ = now + kInterval;
  exchange(0);
  return is_stopped_;
}

std::optional<int64_t> SharedQueue::draw_group() {
  const int64_t index = queue_->fetch_add(1);
  if (index >= num_groups_) return std::nullopt;
  return index;
}

void SharedQueue::empty() { queue_->fetch_add(num_groups_); }

// The signal may reach a rank that has nothing left to do and must tell the others; or come when
// some have left the loop already, so they agree at the end.
bool SharedQueue::ends_stopped() {
  if (!state_) return false;
  for (int64_t state = exchange(1); !is_stopped_ && state < world_.size(); state = exchange(0))
    std::this_thread::sleep_for(kInterval);
  double stopped[1] = {is_stopped_ ? 1.0 : 0.0};
  dist::all_reduce_max(world_, stopped);
  return stopped[0] != 0;
}

int64_t SharedQueue::exchange(int64_t done) {
  const int64_t added = done + (should_stop_() ? kStop : 0);
  const int64_t state = state_->fetch_add(added) + added;
  is_stopped_ = state >= kStop;
  return state;
}

void EngineGroup::run(const std::function<void()>& work) {
  if (ranks_.size() == 1) return work();
  if (ranks_.rank() != 0) {
    work();
    hear({});  // that the leader has ended well
    return;
  }
  try {
    work();
  } catch (const Error& error) {
    tell(kFailed);
    const std::string bytes = dist::broadcast_bytes(ranks_, dist::pack_error(error), 0);
    throw dist::unpack_error(bytes, 0, ranks_.size());
  }
  tell(kDone);
}

// From the leader to the others.
void EngineGroup::tell(int64_t answer) {
  ranks_.broadcast({}, tensor::Tensor(&answer, tensor::DType::kI64, {}, {1}), 0);
}

// The leader's answer on every rank; `ask` is called by the leader alone.
int64_t EngineGroup::hear(const std::function<int64_t()>& ask) {
  if (ranks_.size() == 1) return ask();
  int64_t answer = 0;
  if (ranks_.rank() == 0) {
    answer = ask();
    tell(answer);
    return answer;
  }
  ranks_.broadcast({}, tensor::Tensor(&answer, tensor::DType::kI64, {}, {1}), 0);
  if (answer == kFailed)
    throw dist::unpack_error(dist::broadcast_bytes(ranks_, "", 0), 0, ranks_.size());
  return answer;
}

bool EngineGroup::is_stopped() {
  note_progress();
  return hear([&] { return leader_.is_stopped() ? 1 : 0; }) != 0;
}

std::optional<int64_t> EngineGroup::draw_group() {
  const int64_t group = hear([&] { return leader_.draw_group().value_or(kNoGroup); });
  if (group == kNoGroup) return std::nullopt;
  return group;
}

}  // namespace slimexx::rl
