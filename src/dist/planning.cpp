#include "slimexx/dist/planning.h"

#include <utility>

#include "dist/axis_groups.h"
#include "dist/backend.h"
#include "slimexx/base/check.h"

namespace slimexx::dist {
namespace {

class PlanningBackend : public Backend {
 public:
  PlanningBackend(int rank, int size, tensor::Device device, std::shared_ptr<int64_t> sent_bytes)
      : rank_(rank), size_(size), device_(device), sent_bytes_(std::move(sent_bytes)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  tensor::Device device() const override { return device_; }
  void plan_sent(int64_t bytes) override {
    if (sent_bytes_) *sent_bytes_ += bytes;
  }
  // For groups on devices, these two return the same as NCCL's backend.
  bool is_queued() const override { return !device_.is_cpu(); }
  bool reduces() const override { return !device_.is_cpu(); }

  void barrier() override { refuse("barrier"); }
  void broadcast(tensor::Stream, char*, int64_t, int) override { refuse("broadcast"); }
  void all_gather_ranges(tensor::Stream, char*, std::span<const Range>) override {
    refuse("all_gather_ranges");
  }
  void exchange(tensor::Stream, std::span<const Message>, std::span<const Message>) override {
    refuse("exchange");
  }
  void reduce_scatter_sum(tensor::Stream, tensor::Tensor, std::span<const Range>) override {
    refuse("reduce_scatter_sum");
  }
  void all_reduce(tensor::Stream, tensor::Tensor, Combine) override { refuse("all_reduce"); }
  std::unique_ptr<Backend> split(int, int) override { refuse("split"); }
  std::unique_ptr<SharedCounter> make_counter() override { refuse("make_counter"); }

 private:
  [[noreturn]] void refuse(const char* call) const {
    SLX_CHECK(false, "{} on rank {} of {}, but a plan runs no ranks", call, rank_, size_);
  }
  int rank_, size_;
  tensor::Device device_;
  std::shared_ptr<int64_t> sent_bytes_;
};

}  // namespace

std::unique_ptr<Collective> make_planning_group(int rank, int size, tensor::Device device,
                                                std::shared_ptr<int64_t> sent_bytes) {
  SLX_CHECK(0 <= rank && rank < size, "rank {} of {}", rank, size);
  if (size == 1) return std::make_unique<Collective>();
  return std::make_unique<Collective>(
      std::make_unique<PlanningBackend>(rank, size, device, std::move(sent_bytes)));
}

PlanningGrid::PlanningGrid(const GridShape& shape, int rank, tensor::Device device)
    : shape_(shape),
      host_(make_planning_group(rank, shape.world_size(), {})),
      world_bytes_(std::make_shared<int64_t>(0)),
      world_(make_planning_group(rank, shape.world_size(), device, world_bytes_)) {
  const AxisGroups axes = make_axis_groups(shape_, one_, *world_, [&](GridAxis axis) {
    const auto bytes = std::make_shared<int64_t>(0);
    bytes_[static_cast<size_t>(axis)] = bytes;
    parts_.push_back(
        make_planning_group(shape_.coordinate(axis, rank), shape_.size(axis), device, bytes));
    return parts_.back().get();
  });
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == world_.get()) bytes_[i] = world_bytes_;
    for (size_t j = 0; j < i; ++j)
      if (axes[i] == axes[j]) bytes_[i] = bytes_[j];
  }
  groups_ = std::make_unique<Groups>(to_groups(*world_, axes));
}

int64_t PlanningGrid::sent_bytes(GridAxis axis) const {
  const auto& bytes = bytes_[static_cast<size_t>(axis)];
  return bytes ? *bytes : 0;
}

void PlanningGrid::clear_sent_bytes() {
  for (const auto& bytes : bytes_)
    if (bytes) *bytes = 0;
  *world_bytes_ = 0;
}

}  // namespace slimexx::dist
