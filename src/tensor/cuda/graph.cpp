#include "slimexx/tensor/graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/tensor/cuda_check.h"
#include "tensor/device_api.h"

namespace slimexx::tensor {
namespace {

cudaStream_t as_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

Graph::Graph(Stream stream, const std::function<void()>& body) {
  SLX_CHECK(!stream.device.is_cpu() && !stream.is_planning);
  cudaGraph_t graph = nullptr;
  SLX_CUDA(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal));
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(as_stream(stream), &graph);  // otherwise the stream stays unusable
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  SLX_CUDA(cudaStreamEndCapture(as_stream(stream), &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(status, "cudaGraphInstantiate");
  handle_ = executable;
  device_api::count_graph(stream.device);
}

Graph::Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}

void Graph::launch(Stream stream) const {
  SLX_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), as_stream(stream)));
}

bool is_recording(Stream stream) {
  if (stream.device.is_cpu() || stream.is_planning) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  SLX_CUDA(cudaStreamIsCapturing(as_stream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace slimexx::tensor
