#include "ops/cpu/isa/isa.h"

#include <atomic>

namespace slimexx::ops::cpu {
namespace {

std::atomic<const KernelTable*>& current() {
  static std::atomic<const KernelTable*> table{available_kernels().back()};
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
