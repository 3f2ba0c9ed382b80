// What a thread does now: its phase, the collective call it is in, and a count of what it has
// begun. Others read it at any moment, also from another process, and even after a death: it is
// plain words that are stored relaxed, which costs a few nanoseconds a call.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx {

// At most 23 bytes; what is longer is cut.
struct ShortName {
  constexpr ShortName() = default;
  explicit constexpr ShortName(std::string_view text) {
    for (size_t i = 0; i < text.size() && i < 8 * words.size() - 1; ++i)
      words[i / 8] |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * (i % 8));
  }
  std::string text() const;
  std::array<uint64_t, 3> words{};
};

// Which call it is: its number on its group, or the rank that it sends to or receives from.
struct GroupCall {
  uint64_t group = 0;  // the same on all its ranks, and no other's; 0: it is not known
  int64_t rank = 0;    // of the caller in it
  int64_t number = 0;  // the same on all its ranks; 0: none
  int64_t peer = -1;   // rank in it, of a send or receive
};

constexpr size_t kMostGroups = 48;  // that are remembered; those that were called last

// As made: does nothing. A torn name may be read while it is stored; readers are people.
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
  // A group of the rank's, and how many calls on it that rank has begun.
  struct Membership {
    std::atomic<uint64_t> group{0};
    std::atomic<int64_t> rank{0}, num_calls{0}, used_at{0};
  };
  Name phase, call, group;                      // of the last call, or the one it is in
  std::atomic<int64_t> num_ranks{0}, bytes{0};  // of that
  std::atomic<uint64_t> group_id{0};            // and GroupCall's
  std::atomic<int64_t> number{0}, peer{-1};
  Name outside;  // what it waits for beside ranks; empty: nothing
  std::atomic<int64_t> is_in_call{0};
  std::atomic<int64_t> progress{0};  // phases and calls begun, and steps within them
  std::atomic<int64_t> has_left{0};  // its rank has ended well, or told its own failure
  // By the watch of its process: its looks, and those that saw threads at work outside of calls.
  std::atomic<int64_t> looks{0}, work{0};
  std::array<Membership, kMostGroups> memberships;
};
static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(Activity) == 1712,
              "processes of one build share it");

Activity& own_activity();
// From now on the calling thread's is kept at `place`, which must outlive that; null: in memory of
// its own, as at first.
void keep_activity_at(Activity* place);

// A copy, for people.
struct ActivityView {
  std::string phase, call, group;
  bool is_in_call = false;  // or `call` was the last
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
  const Membership* find_membership(uint64_t id) const;  // null: none is known
};
ActivityView view_activity(const Activity& activity);
// "phase generate, in all_gather of 4 ranks (tp, call 7), 4096 bytes"; on a device a call may still
// run that was queued: "phase generate, in no collective call, the last was all_gather of ...".
std::string describe_activity(const ActivityView& view);

// The phase until the end of the scope, then the one before.
class PhaseScope {
 public:
  explicit PhaseScope(std::string_view name);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  ShortName previous_;
};

// The innermost phase that the calling thread's last exception left; empty once a phase was begun
// since.
std::string failed_phase();

// Tells that the calling thread's rank is in a group, and how many calls on it that has begun.
void note_membership(const GroupCall& call);

// A collective call until the end of the scope. A call that another one makes is not told.
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

// A step of long work that begins no phase and no call, so that nobody takes it for a hang.
void note_progress();

// A wait for what is no rank, until the end of the scope: a service, a device. It may take as long
// as it will: while any thread of any rank is in one, nobody takes the run for hung. What is read
// or written needs none, nor does a wait for threads of this process that are at work.
class OutsideWaitScope {
 public:
  explicit OutsideWaitScope(const ShortName& what);
  ~OutsideWaitScope();
  OutsideWaitScope(const OutsideWaitScope&) = delete;
  OutsideWaitScope& operator=(const OutsideWaitScope&) = delete;

 private:
  ShortName previous_;
};

// Of all threads of this process.
struct OutsideWaits {
  int64_t num_begun = 0, num_open = 0;
};
OutsideWaits count_outside_waits();

std::string host_name();

}  // namespace slimexx
