#include "slimexx/tensor/graph.h"

#include <utility>

#include "slimexx/base/check.h"

namespace slimexx::tensor {

Graph::Graph(Stream, const std::function<void()>&) { SLX_CHECK(false, "this build has no CUDA"); }
Graph::Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}
Graph::~Graph() = default;
void Graph::launch(Stream) const { SLX_CHECK(false, "this build has no CUDA"); }
bool is_recording(Stream) { return false; }

}  // namespace slimexx::tensor
