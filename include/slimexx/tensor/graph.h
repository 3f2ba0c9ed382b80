// Device work that is recorded once and launched as a whole, which costs the host one call. CUDA
// only. Addresses and sizes are recorded as they are: what varies must stand in device memory.
#pragma once
#include <functional>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {

class Graph {
 public:
  Graph() = default;
  // Records what `body` queues on the stream; none of it runs. `body` must have run once before in
  // the plain way (first uses may set things up), and must not wait for the device.
  Graph(Stream stream, const std::function<void()>& body);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  bool defined() const { return handle_ != nullptr; }
  void launch(Stream stream) const;

 private:
  void* handle_ = nullptr;  // cudaGraphExec_t
};

// Whether work that is queued on the stream now is recorded into a graph.
bool is_recording(Stream stream);

}  // namespace slimexx::tensor
