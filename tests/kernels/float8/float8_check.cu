// Checks FP8: the quantisers byte by byte against the functions that the CPU uses.
//
//   float8_check [small | tiny]      for compute-sanitizer: check_size.h
#include "tests/kernels/check_size.h"
#include "tests/kernels/float8/quantise_cases.cuh"
#include "tests/kernels/float8/reference.cuh"

namespace slimexx::kernels::testing {
namespace {

int run(CheckSize size) {
  CheckCounts counts;
  check_quantisers(counts, size == CheckSize::kTiny);
  std::printf("float8_check: %d comparisons, %d failures\n", counts.comparisons, counts.failures);
  return counts.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
