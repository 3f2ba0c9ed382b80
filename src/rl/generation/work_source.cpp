#include "rl/generation/work_source.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kStop = int64_t{1} << 32;
constexpr ShortName kEndOfQueue{"end_of_queue"};
constexpr auto kInterval = std::chrono::milliseconds(20);
// Between hosts an exchange may wait until the rank that holds the shared number calls MPI. At most
// 1 / kExchangeShare of an engine's time goes to exchanges.
constexpr int kExchangeShare = 50;
// A leader's answer: the number of a group, 0 or 1 for no or yes, or one of these.
constexpr int64_t kNoGroup = -1, kDone = -2, kFailed = -3;
// Ranks that run their steps together each report one of these before a step; the largest one
// applies to all of them.
constexpr int64_t kNothingLeft = 0, kGoesOn = 1, kStepFailed = 2;

}  // namespace

SharedQueue::SharedQueue(dist::Collective& world, int64_t num_groups,
                         std::function<bool()> should_stop)
    : world_(world),
      num_groups_(num_groups),
      should_stop_(std::move(should_stop)),
      queue_(world.make_counter()),
      finished_(world.make_counter()),
      state_(should_stop_ ? world.make_counter() : nullptr) {}

bool SharedQueue::is_stopped() {
  const auto now = std::chrono::steady_clock::now();
  if (!state_ || is_stopped_ || now < next_exchange_) return is_stopped_;
  exchange(0);
  const auto taken = std::chrono::steady_clock::now() - now;
  next_exchange_ =
      now + std::max<std::chrono::steady_clock::duration>(kInterval, kExchangeShare * taken);
  return is_stopped_;
}

std::optional<int64_t> SharedQueue::draw_group() {
  const int64_t index = queue_->fetch_add(1);
  if (index >= num_groups_) return std::nullopt;
  return index;
}

void SharedQueue::empty() { queue_->fetch_add(num_groups_); }

int64_t SharedQueue::finish_sample() { return finished_->fetch_add(1) + 1; }

// Ranks agree at the end: a signal may reach a rank that has no work left, or may come after some
// ranks have left the loop.
bool SharedQueue::ends_stopped() {
  if (!state_) return false;
  {
    const CallScope scope = world_.await_all(kEndOfQueue);
    for (int64_t state = exchange(1); !is_stopped_ && state < world_.size(); state = exchange(0))
      std::this_thread::sleep_for(kInterval);
  }
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
  has_told_ = ranks_.size() == 1;
  try {
    run_group(work);
  } catch (const Error& error) {
    if (!has_told_ || in_lock_step_ == nullptr || has_thrown_together_) throw;
    agree(kStepFailed);
    throw_together(dist::pack_error(error));
  }
}

void EngineGroup::run_group(const std::function<void()>& work) {
  if (ranks_.size() == 1) return work();
  const bool leads = ranks_.rank() == 0;
  try {
    work();
  } catch (const Error& error) {
    if (has_told_) throw;
    if (!leads) {
      hear({});  // ranks with the same batch fail the same way: throw the leader's error
      throw;
    }
    tell(kFailed);
    has_told_ = true;
    const std::string bytes = dist::broadcast_bytes(ranks_, dist::pack_error(error), 0);
    throw dist::unpack_error(bytes, 0, ranks_.size());
  }
  if (leads) return tell(kDone);
  hear({});  // wait until the leader has ended without an error
}

// Broadcast from the leader to the others.
void EngineGroup::tell(int64_t answer) {
  ranks_.broadcast({}, tensor::Tensor(&answer, tensor::DType::kI64, {}, {1}), 0);
}

// Returns the leader's answer on every rank; only the leader calls `ask`.
int64_t EngineGroup::hear(const std::function<int64_t()>& ask) {
  if (ranks_.size() == 1) return ask();
  int64_t answer = 0;
  if (ranks_.rank() == 0) {
    answer = ask();
    tell(answer);
    return answer;
  }
  ranks_.broadcast({}, tensor::Tensor(&answer, tensor::DType::kI64, {}, {1}), 0);
  if (answer != kFailed) return answer;
  has_told_ = true;
  throw dist::unpack_error(dist::broadcast_bytes(ranks_, "", 0), 0, ranks_.size());
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

bool EngineGroup::goes_on(bool has_more) {
  if (in_lock_step_ == nullptr) return has_more;
  const int64_t state = agree(has_more ? kGoesOn : kNothingLeft);
  if (state == kStepFailed) throw_together("");
  return state == kGoesOn;
}

int64_t EngineGroup::agree(int64_t own) {
  double state[1] = {static_cast<double>(own)};
  dist::all_reduce_max(*in_lock_step_, state);
  return static_cast<int64_t>(state[0]);
}

// All ranks in lock step throw the same error: the first one among them.
void EngineGroup::throw_together(const std::string& packed_error) {
  has_told_ = has_thrown_together_ = true;
  const auto errors = dist::all_gather_bytes(*in_lock_step_, packed_error);
  const auto first = std::ranges::find_if(errors, [](const auto& bytes) { return !bytes.empty(); });
  throw dist::unpack_error(*first, static_cast<int>(first - errors.begin()), in_lock_step_->size());
}

}  // namespace slimexx::rl
