#include "ops/cpu/isa/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "slimexx/base/error.h"

namespace slimexx::ops::cpu {
namespace {

// The best table, or the one that SLX_CPU_KERNELS names. The generic table does not fuse multiply
// and add, so its bits differ from those of all other tables.
const KernelTable* choose_kernels() {
  const auto tables = available_kernels();
  const char* wanted = std::getenv("SLX_CPU_KERNELS");
  if (wanted == nullptr || *wanted == '\0') return tables.back();
  const auto found = std::ranges::find(tables, std::string_view(wanted), [](const KernelTable* t) {
    return std::string_view(t->name);
  });
  if (found != tables.end()) return *found;
  std::string names;
  for (const KernelTable* table : tables)
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  throw Error(ErrorCode::kUsage, fmt::format("this CPU has no kernels \"{}\"", wanted),
              "one of " + names, "SLX_CPU_KERNELS");
}

std::atomic<const KernelTable*>& current() {
  static std::atomic<const KernelTable*> table{choose_kernels()};
  return table;
}

}  // namespace

std::vector<const KernelTable*> available_kernels() {
  std::vector<const KernelTable*> tables{&kGenericKernels};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    tables.push_back(&kAvx2Kernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    tables.push_back(&kAvx512Kernels);
#endif
  return tables;
}

const KernelTable& kernels() { return *current().load(std::memory_order_relaxed); }

void use_kernels(const KernelTable& table) { current().store(&table); }

}  // namespace slimexx::ops::cpu
