// The instruction set of the CPU backend: SLX_CPU_KERNELS or the best one, chosen at first use.
#pragma once
#include <string_view>
#include <vector>

#include "ops/cpu/isa/kernel_table.h"

namespace slimexx::ops::cpu {

const KernelTable& kernels();
// The tables that can run here, slowest first.
std::vector<const KernelTable*> available_kernels();
// For tests and benchmarks: use this table from now on. Do not call it while an op runs.
void use_kernels(const KernelTable& table);

}  // namespace slimexx::ops::cpu
