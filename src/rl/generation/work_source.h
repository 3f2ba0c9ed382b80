// Sources of work that tell engines what to generate and when to stop: a queue shared by the
// engines of all ranks, and for the ranks of one engine the answers of their leader.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/rollout/generate.h"

namespace slimexx::rl {

// One queue of groups for the engines of all ranks, and the stop that any rank may request. The
// ranks share one number: a rank that is done adds 1, a rank that is asked to stop adds kStop.
class SharedQueue : public rollout::WorkSource {
 public:
  // `should_stop` is set on all ranks or on none; polled. Collective.
  SharedQueue(dist::Collective& world, int64_t num_groups, std::function<bool()> should_stop);

  bool is_stopped() override;
  std::optional<int64_t> draw_group() override;
  void empty();             // no rank draws any more
  int64_t finish_sample();  // the number finished by all ranks, including this one
  // Waits until every rank is done or stops; returns whether one stopped. Collective.
  bool ends_stopped();

 private:
  int64_t exchange(int64_t done);

  dist::Collective& world_;
  const int64_t num_groups_;
  const std::function<bool()> should_stop_;
  std::unique_ptr<dist::SharedCounter> queue_, finished_, state_;
  std::chrono::steady_clock::time_point next_exchange_;
  bool is_stopped_ = false;
};

// The ranks that share one engine's attention. Rank 0 is the leader: it asks `leader` and
// broadcasts the answers; the other ranks never ask their own source. So no rank decides by its own
// clock or its own draws from the queue. Groups whose engines step together
// (Engine::runs_in_lock_step) each have a leader, and agree before every step whether any of them
// goes on.
class EngineGroup : public rollout::WorkSource {
 public:
  // All arguments are borrowed. `ranks` are those of the group, `in_lock_step` those of all groups
  // that step together; null: the group steps alone.
  EngineGroup(dist::Collective& ranks, rollout::WorkSource& leader,
              dist::Collective* in_lock_step = nullptr)
      : ranks_(ranks), leader_(leader), in_lock_step_(in_lock_step) {}

  // Runs `work`, which uses this source. If the leader throws an Error, in `work` or in `leader`,
  // the others throw it too when they next ask, or at the end; so do the groups in lock step.
  // Collective over the engine's ranks.
  void run(const std::function<void()>& work);
  // Whether all ranks that wait for this one know the Error that run() threw. This can be false
  // only if this rank is not a leader.
  bool has_told() const { return has_told_; }
  bool is_stopped() override;
  std::optional<int64_t> draw_group() override;
  bool goes_on(bool has_more) override;

 private:
  void run_group(const std::function<void()>& work);
  int64_t agree(int64_t own);
  [[noreturn]] void throw_together(const std::string& packed_error);
  void tell(int64_t answer);
  int64_t hear(const std::function<int64_t()>& ask);

  dist::Collective& ranks_;
  rollout::WorkSource& leader_;
  dist::Collective* in_lock_step_;
  bool has_told_ = false, has_thrown_together_ = false;
};

}  // namespace slimexx::rl
