// Launches that are captured in a graph once and replayed.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

// Queues launch number `i`.
using Launch = std::function<void(int i, cudaStream_t stream)>;

// Weights that do not stay in L2: copy i starts `elements` after copy i - 1.
struct WeightCopies {
  const __nv_bfloat16* first;
  int64_t elements;
  int count;
};
using WeightLaunch = std::function<void(const __nv_bfloat16* w, cudaStream_t stream)>;

class Replay {
 public:
  Replay(int launches, const Launch& launch) : launches_(launches) {
    SLX_CUDA(cudaStreamCreate(&stream_));
    cudaGraph_t graph;
    SLX_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches_; ++i) launch(i, stream_);
    SLX_CUDA(cudaStreamEndCapture(stream_, &graph));
    SLX_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
    SLX_CUDA(cudaGraphDestroy(graph));
    SLX_CUDA(cudaEventCreate(&begin_));
    SLX_CUDA(cudaEventCreate(&end_));
  }
  // One launch per copy of the weights.
  Replay(const WeightCopies& weights, const WeightLaunch& launch)
      : Replay(weights.count, [&](int i, cudaStream_t stream) {
          launch(weights.first + i * weights.elements, stream);
        }) {}
  Replay(const Replay&) = delete;
  ~Replay() {
    cudaGraphExecDestroy(graph_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  // Mean microseconds per launch over `repeats` replays.
  double time(int repeats) {
    SLX_CUDA(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < repeats; ++i) SLX_CUDA(cudaGraphLaunch(graph_, stream_));
    SLX_CUDA(cudaEventRecord(end_, stream_));
    SLX_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    SLX_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) * 1e3 / (repeats * launches_);
  }
  // Number of replays that takes about `target_us`, clamped to [least, most].
  int count_repeats(double target_us, int least, int most) {
    return std::clamp(static_cast<int>(target_us / (time(2) * launches_)), least, most);
  }
  // Mean microseconds per launch over about `target_us`. Half as many replays warm up first: the
  // clock depends on the power of the last tenth of a second, perhaps that of another kernel.
  double measure(double target_us) {
    const int repeats = count_repeats(target_us, 2, 10000);
    time(std::max(1, repeats / 2));
    return time(repeats);
  }

 private:
  int launches_;
  cudaStream_t stream_;
  cudaGraphExec_t graph_;
  cudaEvent_t begin_, end_;
};

}  // namespace slimexx::kernels::testing
