// A thread's current activity: its phase, its collective call, and a count of its progress. Other
// threads and processes may read the activity at any time, even after the writer's death. All
// fields are relaxed atomic words, so an update costs a few nanoseconds.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx {

// At most 23 bytes; longer names are truncated.
struct ShortName {
  constexpr ShortName() = default;
  explicit constexpr ShortName(std::string_view text) {
    for (size_t i = 0; i < text.size() && i < 8 * words.size() - 1; ++i)
      words[i / 8] |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * (i % 8));
  }
  std::string text() const;
  std::array<uint64_t, 3> words{};
};

// Identifies a call: its number on its group, or its peer for a send or receive.
struct GroupCall {
  uint64_t group = 0;  // unique id, the same on all ranks of the group; 0: unknown
  int64_t rank = 0;    // the caller's rank in the group
  int64_t number = 0;  // the same on all ranks of the group; 0: none
  int64_t peer = -1;   // group rank of the peer of a send or receive
};

constexpr size_t kMostGroups = 48;  // groups that an activity remembers: those called last

// Default-constructed: idle. A reader may see a torn name during a store; names are only shown to
// users.
struct Activity {
  struct Name {
    std::array<std::atomic<uint64_t>, 3> words{};
    void store(const ShortName& name) {
      for (size_t i = 0; i < words.size(); ++i)
        words[i].store(name.words[i], std::memory_order_relaxed);
    }
    ShortName load() const {
      ShortName name;
      for (size_t i = 0; i < words.size(); ++i)
        name.words[i] = words[i].load(std::memory_order_relaxed);
      return name;
    }
  };
  // A group that the rank belongs to, and the number of calls that it has begun on the group.
  struct Membership {
    std::atomic<uint64_t> group{0};
    std::atomic<int64_t> rank{0}, num_calls{0}, used_at{0};
  };
  Name phase, call, group;                      // call and group: current or last call
  std::atomic<int64_t> num_ranks{0}, bytes{0};  // of that call
  std::atomic<uint64_t> group_id{0};            // this and the next two: see GroupCall
  std::atomic<int64_t> number{0}, peer{-1};
  Name outside;  // service or device that the thread waits for; empty: none
  std::atomic<int64_t> is_in_call{0};
  std::atomic<int64_t> progress{0};  // number of phases, calls and steps begun
  std::atomic<int64_t> has_left{0};  // the rank has ended normally or reported its own failure
  // Written by the watch of this process: the number of its checks, and of those that found threads
  // at work outside calls.
  std::atomic<int64_t> looks{0}, work{0};
  std::array<Membership, kMostGroups> memberships;
};
static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(Activity) == 1712,
              "processes of one build share it");

Activity& own_activity();
// Moves the calling thread's activity to `place`, which must outlive its use; null: back to its own
// memory.
void keep_activity_at(Activity* place);

// A snapshot with readable names.
struct ActivityView {
  std::string phase, call, group;
  bool is_in_call = false;  // otherwise `call` is the last call
  int64_t num_ranks = 0, bytes = 0, progress = 0;
  uint64_t group_id = 0;
  int64_t number = 0, peer = -1, looks = 0, work = 0;
  bool has_left = false;
  std::string outside;
  struct Membership {
    uint64_t group = 0;
    int64_t rank = 0, num_calls = 0;
  };
  std::vector<Membership> memberships;
  const Membership* find_membership(uint64_t id) const;  // null: not remembered
};
ActivityView view_activity(const Activity& activity);
// "phase generate, in all_gather of 4 ranks (tp, call 7), 4096 bytes". Outside a call, names the
// last call, which may still run on a device: "phase generate, in no collective call, the last was
// all_gather of ...".
std::string describe_activity(const ActivityView& view);

// Sets the phase until the end of the scope, then restores the previous one.
class PhaseScope {
 public:
  explicit PhaseScope(std::string_view name);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  ShortName previous_;
};

// The innermost phase of the calling thread when its last exception was thrown; empty once a new
// phase has begun.
std::string failed_phase();

// Records that the calling thread's rank belongs to a group, and how many calls the rank has begun
// on that group.
void note_membership(const GroupCall& call);

// Marks a collective call until the end of the scope. Calls inside another call are not recorded.
class CallScope {
 public:
  CallScope(const ShortName& call, const ShortName& group, int64_t num_ranks, int64_t bytes,
            const GroupCall& id = {})
      : activity_(own_activity()), is_inner_(activity_.is_in_call.load(kOrder) != 0) {
    if (is_inner_) return;
    activity_.group.store(group);
    activity_.num_ranks.store(num_ranks, kOrder);
    activity_.bytes.store(bytes, kOrder);
    activity_.call.store(call);
    activity_.group_id.store(id.group, kOrder);
    activity_.number.store(id.number, kOrder);
    activity_.peer.store(id.peer, kOrder);
    if (id.number > 0) note_membership(id);
    activity_.is_in_call.store(1, kOrder);
    activity_.progress.store(activity_.progress.load(kOrder) + 1, kOrder);
  }
  ~CallScope() {
    if (!is_inner_) activity_.is_in_call.store(0, kOrder);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  static constexpr auto kOrder = std::memory_order_relaxed;
  Activity& activity_;
  const bool is_inner_;
};

// Reports progress in long work without phases or calls, so that it is not taken for a hang.
void note_progress();

// Declares a wait for something other than a rank, such as a service or a device, until the end of
// the scope. The wait has no time limit: while any thread of any rank is in such a scope, the run
// does not count as hung. File access and waits for working threads of this process need no scope.
class OutsideWaitScope {
 public:
  explicit OutsideWaitScope(const ShortName& what);
  ~OutsideWaitScope();
  OutsideWaitScope(const OutsideWaitScope&) = delete;
  OutsideWaitScope& operator=(const OutsideWaitScope&) = delete;

 private:
  ShortName previous_;
};

// Totals over all threads of this process.
struct OutsideWaits {
  int64_t num_begun = 0, num_open = 0;
};
OutsideWaits count_outside_waits();

std::string host_name();

}  // namespace slimexx
