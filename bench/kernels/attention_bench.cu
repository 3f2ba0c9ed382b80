// Times attention over whole sequences, as in training and prefill: packed, causal, grouped
// queries. Each shape runs long enough to reach the chip's power limit; a cold first launch is at
// least a tenth faster. bench/peers/attention.py times PyTorch after an equally long warm-up.
#include <cstdio>
#include <vector>

#include "bench/kernels/rows_timing.h"
#include "slimexx/kernels/attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/need_device.h"

namespace {

using namespace slimexx::kernels;
using namespace slimexx::kernels::testing;

constexpr double kTargetMicroseconds = 2e5;
constexpr double kPeakTeraflops = 989;

struct Case {
  Shape shape;
  std::vector<int> lengths;
};

void time_case(const Case& c) {
  const Shape& shape = c.shape;
  World world(shape, c.lengths, 1);
  world.gap = 0;
  const Run run(world);
  const AttentionForward& a = run.forward;
  double flops = 0;
  for (const int n : c.lengths) flops += 2.0 * shape.hq * n * double(n) * shape.d;
  const auto launch = [&](int, cudaStream_t stream) { SLX_CUDA(attention_forward(a, stream)); };
  time_launches(4, 1, kTargetMicroseconds, launch);  // until the clock has settled
  const double us = time_launches(4, 1, kTargetMicroseconds, launch);
  std::printf("hq %d hk %d d %3d, %2zu sequences of up to %5lld: %8.1f us %4.0f TFLOP/s %3.0f %%\n",
              shape.hq, shape.hk, shape.d, c.lengths.size(),
              static_cast<long long>(a.runs.whole.max_query_len), us, flops / us * 1e-6,
              100 * flops / us * 1e-6 / kPeakTeraflops);
  std::fflush(stdout);
}

}  // namespace

int main() {
  need_device();
  for (const Case& c :
       {Case{{32, 8, 128}, {8192}}, Case{{32, 8, 128}, std::vector(8, 1024)},
        Case{{32, 8, 128}, std::vector(4, 2048)}, Case{{32, 8, 128}, std::vector(16, 512)},
        Case{{32, 8, 128}, {2900, 410, 1770, 2230, 300, 950, 1310, 2480}},
        Case{{32, 2, 128}, {8192}}, Case{{32, 8, 64}, {8192}}}) {
    time_case(c);
  }
  return 0;
}
