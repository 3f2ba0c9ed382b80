#include "slimexx/dist/process_grid.h"

#include <fmt/format.h>

#include <string>

#include "dist/axis_groups.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/nearest_grid.h"

namespace slimexx::dist {
namespace {

constexpr std::array<const char*, kNumGridAxes> kAxisNames = {
    "tp", "cp", "pp", "dp", "ep", "etp", "edp", "dp x cp", "tp x dp x cp"};

// Throws Error(kUsage) with the equation and the nearest sizes that divide the number of ranks.
int divide(int world_size, int64_t product, const std::string& names, const GridSizes& sizes) {
  if (product >= 1 && world_size % product == 0) return static_cast<int>(world_size / product);
  const GridAdvice advice = advise_grid(world_size, sizes);
  throw Error(ErrorCode::kUsage,
              fmt::format("{} not divisible by {} = {}",
                          world_size == 1 ? "1 rank is" : fmt::format("{} ranks are", world_size),
                          names, product),
              advice.hint, advice.key);
}

}  // namespace

GridShape::GridShape(int world_size, const GridSizes& s) : world_size_(world_size), sizes_(s) {
  const int dp = divide(world_size, int64_t{s.tp} * s.cp * s.pp,
                        fmt::format("tp {} x cp {} x pp {}", s.tp, s.cp, s.pp), s);
  const int edp = divide(world_size, int64_t{s.etp} * s.ep * s.pp,
                         fmt::format("etp {} x ep {} x pp {}", s.etp, s.ep, s.pp), s);
  const auto set = [&](GridAxis axis, int size, int stride) {
    axes_[static_cast<size_t>(axis)] = {size, stride};
  };
  set(GridAxis::kTp, s.tp, 1);
  set(GridAxis::kCp, s.cp, s.tp);
  set(GridAxis::kDp, dp, s.tp * s.cp);
  set(GridAxis::kPp, s.pp, world_size / s.pp);
  set(GridAxis::kEtp, s.etp, 1);
  set(GridAxis::kEp, s.ep, s.etp);
  set(GridAxis::kEdp, edp, s.etp * s.ep);
  set(GridAxis::kDpCp, s.cp * dp, s.tp);
  set(GridAxis::kTpDpCp, s.tp * s.cp * dp, 1);
}

GridPosition GridShape::position(int rank) const {
  const auto at = [&](GridAxis axis) { return coordinate(axis, rank); };
  return {.tp = at(GridAxis::kTp),
          .cp = at(GridAxis::kCp),
          .dp = at(GridAxis::kDp),
          .pp = at(GridAxis::kPp),
          .etp = at(GridAxis::kEtp),
          .ep = at(GridAxis::kEp),
          .edp = at(GridAxis::kEdp)};
}

std::vector<int> GridShape::group(GridAxis axis, int rank) const {
  const int first = rank - coordinate(axis, rank) * of(axis).stride;
  std::vector<int> ranks;
  for (int i = 0; i < size(axis); ++i) ranks.push_back(first + i * of(axis).stride);
  return ranks;
}

bool GridShape::are_alike(GridAxis a, GridAxis b) const {
  return of(a).size == of(b).size && of(a).stride == of(b).stride;
}

AxisGroups make_axis_groups(const GridShape& shape, Collective& one, Collective& world,
                            const std::function<Collective*(GridAxis)>& make) {
  AxisGroups axes{};
  for (int i = 0; i < kNumGridAxes; ++i) {
    const auto axis = static_cast<GridAxis>(i);
    Collective*& group = axes[static_cast<size_t>(i)];
    if (shape.size(axis) == 1) group = &one;
    if (shape.size(axis) == shape.world_size()) group = &world;
    for (int j = 0; j < i && group == nullptr; ++j)
      if (shape.are_alike(axis, static_cast<GridAxis>(j))) group = axes[static_cast<size_t>(j)];
    if (group == nullptr) group = make(axis);
  }
  return axes;
}

Groups to_groups(Collective& world, const AxisGroups& axes) {
  const auto of = [&](GridAxis axis) -> Collective& { return *axes[static_cast<size_t>(axis)]; };
  return {world,
          of(GridAxis::kTp),
          of(GridAxis::kCp),
          of(GridAxis::kPp),
          of(GridAxis::kDp),
          of(GridAxis::kEp),
          of(GridAxis::kEtp),
          of(GridAxis::kEdp),
          of(GridAxis::kDpCp),
          of(GridAxis::kTpDpCp)};
}

ProcessGrid::ProcessGrid(Collective& host, const GridSizes& sizes, tensor::Device device)
    : shape_(host.size(), sizes) {
  Collective* world = &host;
  if (host.size() == 1) {
    world = &one_;
  } else if (!device.is_cpu()) {
    device_world_ = host.on_device(device);
    if (device_world_ == nullptr) device_world_ = make_device_collective(host, device);
    world = device_world_.get();
    world->set_name("world");
  }
  const AxisGroups axes = make_axis_groups(shape_, one_, *world, [&](GridAxis axis) {
    parts_.push_back(world->split(shape_.group(axis, host.rank())[0], host.rank()));
    parts_.back()->set_name(kAxisNames[static_cast<size_t>(axis)]);
    return parts_.back().get();
  });
  groups_ = std::make_unique<Groups>(to_groups(*world, axes));
}

}  // namespace slimexx::dist
