// A CUDA graph: device work captured once and launched with one host call. CUDA only. Addresses and
// sizes are fixed at capture: values that vary must be in device memory.
#pragma once
#include <functional>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {

class Graph {
 public:
  Graph() = default;
  // Captures the work that `body` queues on the stream, without running it. `body` must have run
  // once without capture, because first uses may allocate or initialize, and must not wait for the
  // device.
  Graph(Stream stream, const std::function<void()>& body);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  bool defined() const { return handle_ != nullptr; }
  void launch(Stream stream) const;

 private:
  void* handle_ = nullptr;  // cudaGraphExec_t
};

// Whether the stream is being captured into a graph.
bool is_recording(Stream stream);

}  // namespace slimexx::tensor
