// Planning without memory or devices: the code that sets up a run reports the memory that it would
// need.
#pragma once

namespace slimexx::tensor {

// While a scope is alive, this thread plans. A Buffer gets made-up addresses and is counted as if
// it had memory; list_allocations() and allocation_counters() count only the allocations of this
// scope. Staging buffers take memory only when written. All device streams are planning streams, so
// no device is needed. Destroy all objects made in a scope before the scope. Scopes do not nest.
class PlanningScope {
 public:
  PlanningScope();
  ~PlanningScope();
  PlanningScope(const PlanningScope&) = delete;
  PlanningScope& operator=(const PlanningScope&) = delete;
};

// Whether this thread is in a PlanningScope.
bool is_planning();

}  // namespace slimexx::tensor
