#include "slimexx/base/activity.h"

#include <fmt/format.h>
#include <unistd.h>

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
  to.is_in_call = from.is_in_call.load();
  to.progress = from.progress.load();
}

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
  return {.phase = activity.phase.load().text(),
          .call = activity.call.load().text(),
          .group = activity.group.load().text(),
          .is_in_call = activity.is_in_call != 0,
          .num_ranks = activity.num_ranks,
          .bytes = activity.bytes,
          .progress = activity.progress};
}

std::string describe_activity(const ActivityView& view) {
  const std::string phase = view.phase.empty() ? "start" : view.phase;
  if (view.call.empty()) return fmt::format("phase {}, in no collective call", phase);
  return fmt::format("phase {}, in {}{} of {} ranks{}{}", phase,
                     view.is_in_call ? "" : "no collective call, the last was ", view.call,
                     view.num_ranks, view.group.empty() ? "" : fmt::format(" ({})", view.group),
                     view.bytes > 0 ? fmt::format(", {} bytes", view.bytes) : "");
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

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace slimexx
