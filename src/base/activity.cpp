#include "slimexx/base/activity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

namespace slimexx {
namespace {

struct OwnActivity {
  Activity memory;
  Activity* place = &memory;
  ShortName failed_phase;
};

OwnActivity& of_this_thread() {
  thread_local OwnActivity own;
  return own;
}

void copy_activity(const Activity& from, Activity& to) {
  to.phase.store(from.phase.load());
  to.call.store(from.call.load());
  to.group.store(from.group.load());
  to.num_ranks = from.num_ranks.load();
  to.bytes = from.bytes.load();
  to.group_id = from.group_id.load();
  to.number = from.number.load();
  to.peer = from.peer.load();
  to.outside.store(from.outside.load());
  to.is_in_call = from.is_in_call.load();
  to.progress = from.progress.load();
  for (size_t i = 0; i < kMostGroups; ++i) {
    to.memberships[i].rank = from.memberships[i].rank.load();
    to.memberships[i].num_calls = from.memberships[i].num_calls.load();
    to.memberships[i].used_at = from.memberships[i].used_at.load();
    to.memberships[i].group = from.memberships[i].group.load();
  }
}

struct {
  std::atomic<int64_t> num_begun{0}, num_open{0};
} outside_waits;

}  // namespace

std::string ShortName::text() const {
  std::string text;
  for (size_t i = 0; i < 8 * words.size(); ++i) {
    const auto c = static_cast<char>(words[i / 8] >> (8 * (i % 8)));
    if (c == '\0') break;
    text += c;
  }
  return text;
}

Activity& own_activity() { return *of_this_thread().place; }

void keep_activity_at(Activity* place) {
  OwnActivity& own = of_this_thread();
  Activity& to = place == nullptr ? own.memory : *place;
  if (&to == own.place) return;
  copy_activity(*own.place, to);
  own.place = &to;
}

ActivityView view_activity(const Activity& activity) {
  ActivityView view{.phase = activity.phase.load().text(),
                    .call = activity.call.load().text(),
                    .group = activity.group.load().text(),
                    .is_in_call = activity.is_in_call != 0,
                    .num_ranks = activity.num_ranks,
                    .bytes = activity.bytes,
                    .progress = activity.progress,
                    .group_id = activity.group_id,
                    .number = activity.number,
                    .peer = activity.peer,
                    .looks = activity.looks,
                    .work = activity.work,
                    .has_left = activity.has_left != 0,
                    .outside = activity.outside.load().text(),
                    .memberships = {}};
  for (const Activity::Membership& m : activity.memberships)
    if (m.group != 0) view.memberships.push_back({m.group, m.rank, m.num_calls});
  return view;
}

const ActivityView::Membership* ActivityView::find_membership(uint64_t id) const {
  const auto found = std::ranges::find(memberships, id, &Membership::group);
  return found == memberships.end() ? nullptr : &*found;
}

// If the table is full, replaces the least recently called group.
void note_membership(const GroupCall& call) {
  if (call.group == 0) return;
  constexpr auto kOrder = std::memory_order_relaxed;
  Activity& activity = own_activity();
  Activity::Membership* place = activity.memberships.data();
  for (Activity::Membership& m : activity.memberships) {
    const uint64_t group = m.group.load(kOrder);
    if (group == call.group || group == 0) {
      place = &m;
      break;
    }
    if (m.used_at.load(kOrder) < place->used_at.load(kOrder)) place = &m;
  }
  if (place->group.load(kOrder) != call.group) place->group.store(0, kOrder);
  place->rank.store(call.rank, kOrder);
  place->num_calls.store(call.number, kOrder);
  place->used_at.store(activity.progress.load(kOrder), kOrder);
  place->group.store(call.group, kOrder);
}

std::string describe_activity(const ActivityView& view) {
  std::string place = view.group;
  if (view.number > 0)
    place += fmt::format("{}call {}", view.group.empty() ? "" : ", ", view.number);
  const std::string call = fmt::format("{} of {} ranks{}{}", view.call, view.num_ranks,
                                       place.empty() ? "" : fmt::format(" ({})", place),
                                       view.bytes > 0 ? fmt::format(", {} bytes", view.bytes) : "");
  std::string text = fmt::format("phase {}, in {}", view.phase.empty() ? "start" : view.phase,
                                 view.is_in_call ? call : "no collective call");
  if (!view.outside.empty()) text += ", waiting for " + view.outside;
  if (!view.is_in_call && !view.call.empty()) text += ", the last one was " + call;
  return text;
}

PhaseScope::PhaseScope(std::string_view name) : previous_(own_activity().phase.load()) {
  of_this_thread().failed_phase = {};
  own_activity().phase.store(ShortName(name));
  note_progress();
}

PhaseScope::~PhaseScope() {
  OwnActivity& own = of_this_thread();
  if (std::uncaught_exceptions() > 0 && own.failed_phase.words[0] == 0)
    own.failed_phase = own.place->phase.load();
  own.place->phase.store(previous_);
}

std::string failed_phase() { return of_this_thread().failed_phase.text(); }

void note_progress() {
  auto& progress = own_activity().progress;
  progress.store(progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

OutsideWaitScope::OutsideWaitScope(const ShortName& what)
    : previous_(own_activity().outside.load()) {
  own_activity().outside.store(what);
  ++outside_waits.num_open;
  ++outside_waits.num_begun;
}

OutsideWaitScope::~OutsideWaitScope() {
  --outside_waits.num_open;
  own_activity().outside.store(previous_);
}

OutsideWaits count_outside_waits() {
  return {.num_begun = outside_waits.num_begun, .num_open = outside_waits.num_open};
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace slimexx
