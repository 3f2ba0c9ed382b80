// Planning without memory and without a device: the code that builds a run says what it would take.
#pragma once

namespace slimexx::tensor {

// While one lives, what this thread does is planned. A Buffer gets addresses with no memory behind
// them and counts as if it had memory; list_allocations() and allocation_counters() count what the
// scope made, and nothing else. Staging buffers take memory where they are written. Streams of
// devices are planning streams, so no device is needed. What is made in a scope goes before the
// scope does. Scopes do not nest.
class PlanningScope {
 public:
  PlanningScope();
  ~PlanningScope();
  PlanningScope(const PlanningScope&) = delete;
  PlanningScope& operator=(const PlanningScope&) = delete;
};

// Whether this thread is in such a scope.
bool is_planning();

}  // namespace slimexx::tensor
