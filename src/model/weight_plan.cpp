#include "slimexx/model/weight_plan.h"

#include <algorithm>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::model {
namespace {

tensor::DType dtype_of(const WeightMove& move, tensor::Device device) {
  return move.dtype.value_or(tensor::compute_dtype(device));
}

int64_t bytes_of(const WeightMove& move, tensor::Device device) {
  return move.num_elements() * tensor::dtype_bytes(dtype_of(move, device));
}

int64_t aligned(int64_t bytes) {
  return (bytes + kMoveAlignmentBytes - 1) / kMoveAlignmentBytes * kMoveAlignmentBytes;
}

tensor::Tensor flat_weight(const ParameterStore& store, ParameterId id) {
  const ParameterInfo& info = store.infos()[static_cast<size_t>(id)];
  return store.group_of(info).weights.rows(info.offset, info.offset + info.num_elements());
}

// The elements of a box from one flat tensor to another, of any types.
void copy_box(const ops::Context& ctx, const std::vector<int64_t>& extents,
              const tensor::Tensor& from, int64_t from_begin,
              const std::vector<int64_t>& from_strides, const tensor::Tensor& to, int64_t to_begin,
              const std::vector<int64_t>& to_strides) {
  for (const auto& run : tensor::list_runs(extents, from_strides, to_strides))
    ops::copy(ctx, to.rows(to_begin + run.to, to_begin + run.to + run.size),
              from.rows(from_begin + run.from, from_begin + run.from + run.size));
}

// Calls visit(move, its elements in `bytes`, one behind another).
template <class Visit>
void for_each_move(const std::vector<WeightMove>& moves, const tensor::Tensor& bytes,
                   const Visit& visit) {
  char* at = static_cast<char*>(bytes.raw());
  for (const WeightMove& move : moves) {
    visit(move, tensor::Tensor(at, dtype_of(move, bytes.device()), bytes.device(),
                               {move.num_elements()}));
    if (at != nullptr) at += aligned(bytes_of(move, bytes.device()));  // null in planning
  }
}

}  // namespace

int64_t WeightMove::num_elements() const {
  int64_t n = 1;
  for (const int64_t extent : extents) n *= extent;
  return n;
}

WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank) {
  const size_t num_ranks = from.ranks.size();
  SLX_CHECK_EQ(to.ranks.size(), num_ranks);
  const HeldTensors tensors = list_held_tensors(from);
  check_covered(tensors);
  WeightPlan plan;
  plan.sends.resize(num_ranks);
  plan.receives.resize(num_ranks);
  std::vector<int64_t> sent(num_ranks, 0);  // elements, by rank
  const auto add_move = [&](int receiver, const ParameterInfo& info, const PartBox& needed,
                            const HeldBox& held, const tensor::Box& both) {
    auto source = std::ranges::find(held.holders, receiver, &Holder::rank);
    if (source == held.holders.end()) {
      source = std::ranges::min_element(held.holders, {}, [&](const Holder& holder) {
        return sent[static_cast<size_t>(holder.rank)];
      });
      sent[static_cast<size_t>(source->rank)] += tensor::count_elements(both);
      plan.has_traffic = true;
    }
    if (receiver != rank && source->rank != rank) return;
    WeightMove move{
        .extents = tensor::extents_of(both),
        .from = place_inside(source->place, held.box, both),
        .to = place_inside({info.id, needed.in_parameter, needed.strides}, needed.on_disk, both),
        .dtype = info.dtype};
    if (receiver == source->rank) {
      plan.local.push_back(std::move(move));
    } else if (receiver == rank) {
      plan.receives[static_cast<size_t>(source->rank)].push_back(std::move(move));
    } else {
      plan.sends[static_cast<size_t>(receiver)].push_back(std::move(move));
    }
  };
  for (int receiver = 0; receiver < static_cast<int>(num_ranks); ++receiver) {
    for (const ParameterInfo& info : *to.ranks[static_cast<size_t>(receiver)]) {
      for (const PartBox& needed : list_boxes(info)) {
        const auto tensor = tensors.find(info.parts[needed.part].name);
        SLX_CHECK(tensor != tensors.end(), "nobody holds {}", info.parts[needed.part].name);
        for (const HeldBox& held : tensor->second.boxes) {
          const tensor::Box both = tensor::intersect(held.box, needed.on_disk);
          if (tensor::count_elements(both) > 0) add_move(receiver, info, needed, held, both);
        }
      }
    }
  }
  return plan;
}

int64_t count_bytes(const std::vector<WeightMove>& moves, tensor::Device device) {
  int64_t bytes = 0;
  for (const WeightMove& move : moves) bytes += aligned(bytes_of(move, device));
  return bytes;
}

void move_local_weights(const ops::Context& ctx, const WeightPlan& plan, const ParameterStore& from,
                        const ParameterStore& to, WeightTraffic& traffic) {
  for (const WeightMove& move : plan.local) {
    const tensor::Tensor source = flat_weight(from, move.from.parameter);
    const tensor::Tensor target = flat_weight(to, move.to.parameter);
    const bool is_alias = source.raw() == target.raw() && source.dtype() == target.dtype() &&
                          move.from.begin == move.to.begin && move.from.strides == move.to.strides;
    (is_alias ? traffic.aliased : traffic.copied) += bytes_of(move, ctx.device());
    if (!is_alias)
      copy_box(ctx, move.extents, source, move.from.begin, move.from.strides, target, move.to.begin,
               move.to.strides);
  }
}

void pack_weights(const ops::Context& ctx, const std::vector<WeightMove>& sends,
                  const ParameterStore& from, const tensor::Tensor& bytes) {
  for_each_move(sends, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, flat_weight(from, move.from.parameter), move.from.begin,
             move.from.strides, packed, 0, tensor::strides_of(move.extents));
  });
}

void unpack_weights(const ops::Context& ctx, const std::vector<WeightMove>& receives,
                    const ParameterStore& to, const tensor::Tensor& bytes) {
  for_each_move(receives, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, packed, 0, tensor::strides_of(move.extents),
             flat_weight(to, move.to.parameter), move.to.begin, move.to.strides);
  });
}

WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks) {
  WeightTraffic traffic;
  if (!plan.has_traffic) {
    move_local_weights(ctx, plan, from, to, traffic);
    return traffic;
  }
  std::vector<int64_t> send_bytes, receive_bytes;
  for (const auto& moves : plan.sends) send_bytes.push_back(count_bytes(moves, ctx.device()));
  for (const auto& moves : plan.receives) receive_bytes.push_back(count_bytes(moves, ctx.device()));
  for (const int64_t bytes : send_bytes) traffic.sent += bytes;
  for (const int64_t bytes : receive_bytes) traffic.received += bytes;
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Tensor out = ctx.arena.allocate(tensor::DType::kU8, {traffic.sent});
  const tensor::Tensor in = ctx.arena.allocate(tensor::DType::kU8, {traffic.received});
  int64_t at = 0;
  for (size_t peer = 0; peer < plan.sends.size(); ++peer) {
    pack_weights(ctx, plan.sends[peer], from, out.rows(at, at + send_bytes[peer]));
    at += send_bytes[peer];
  }
  // What is sent was packed: local copies may write over it now.
  move_local_weights(ctx, plan, from, to, traffic);
  ranks.all_to_all(ctx.stream, in, out, send_bytes, receive_bytes);
  at = 0;
  for (size_t peer = 0; peer < plan.receives.size(); ++peer) {
    unpack_weights(ctx, plan.receives[peer], to, in.rows(at, at + receive_bytes[peer]));
    at += receive_bytes[peer];
  }
  return traffic;
}

}  // namespace slimexx::model
