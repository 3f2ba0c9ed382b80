// Moves weights from one layout's memory to another's, following a plan.
#include <algorithm>
#include <utility>

#include "slimexx/model/weight_plan.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/tensor/strided_copy.h"

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
  const ParameterInfo& info = store.info(id);
  return store.group_of(info).weights.rows(info.offset, info.offset + info.num_elements());
}

// Copies the elements of a box between flat tensors of any dtypes.
void copy_box(const ops::Context& ctx, const std::vector<int64_t>& extents,
              const tensor::Tensor& from, int64_t from_begin,
              const std::vector<int64_t>& from_strides, const tensor::Tensor& to, int64_t to_begin,
              const std::vector<int64_t>& to_strides) {
  if (ctx.planning()) return;
  const int64_t width = tensor::dtype_bytes(from.dtype());
  for (const tensor::BoxRows& list : tensor::list_rows(extents, from_strides, to_strides)) {
    const auto part = [&](const tensor::Tensor& flat, int64_t begin) {
      return flat.rows(begin, begin + list.first.size);
    };
    const int64_t source = from_begin + list.first.from, target = to_begin + list.first.to;
    if (list.rows > 1 && from.dtype() == to.dtype()) {
      tensor::copy_row_bytes(ctx.stream, {part(to, target).raw(), list.to_stride * width},
                             {part(from, source).raw(), list.from_stride * width},
                             list.first.size * width, list.rows);
      continue;
    }
    for (int64_t row = 0; row < list.rows; ++row) {
      const tensor::Tensor to_row = part(to, target + row * list.to_stride);
      const tensor::Tensor from_row = part(from, source + row * list.from_stride);
      if (from.dtype() == to.dtype())
        tensor::copy_bytes(ctx.stream, to_row, from_row);
      else
        ops::copy(ctx, to_row, from_row);
    }
  }
}

// The moves of one round; `moves` is sorted by round.
std::span<const WeightMove> moves_of_round(const std::vector<WeightMove>& moves, int64_t round) {
  const auto first = std::ranges::lower_bound(moves, round, {}, &WeightMove::round);
  return {first, std::ranges::upper_bound(moves, round, {}, &WeightMove::round)};
}

// Calls visit(move, elements) for each move; the elements are consecutive in `bytes`.
template <class Visit>
void for_each_move(std::span<const WeightMove> moves, const tensor::Tensor& bytes,
                   const Visit& visit) {
  char* at = static_cast<char*>(bytes.raw());
  for (const WeightMove& move : moves) {
    visit(move, tensor::Tensor(at, dtype_of(move, bytes.device()), bytes.device(),
                               {move.num_elements()}));
    if (at != nullptr) at += aligned(bytes_of(move, bytes.device()));  // null in planning
  }
}

}  // namespace

int64_t count_bytes(std::span<const WeightMove> moves, tensor::Device device) {
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

void pack_weights(const ops::Context& ctx, std::span<const WeightMove> sends,
                  const ParameterStore& from, const tensor::Tensor& bytes) {
  for_each_move(sends, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, flat_weight(from, move.from.parameter), move.from.begin,
             move.from.strides, packed, 0, tensor::strides_of(move.extents));
  });
}

void unpack_weights(const ops::Context& ctx, std::span<const WeightMove> receives,
                    const ParameterStore& to, const tensor::Tensor& bytes) {
  for_each_move(receives, bytes, [&](const WeightMove& move, const tensor::Tensor& packed) {
    copy_box(ctx, move.extents, packed, 0, tensor::strides_of(move.extents),
             flat_weight(to, move.to.parameter), move.to.begin, move.to.strides);
  });
}

namespace {

// Send and receive buffers of one round. At most two rounds are in flight, so rounds r and r + 2
// share memory.
struct Round {
  std::vector<int64_t> send_bytes, receive_bytes;  // by peer
  int64_t sent = 0, received = 0;
  tensor::Tensor out, in;
};

std::vector<Round> list_rounds(const WeightPlan& plan, tensor::Device device) {
  std::vector<Round> rounds(static_cast<size_t>(plan.num_rounds));
  for (int64_t r = 0; r < plan.num_rounds; ++r) {
    Round& round = rounds[static_cast<size_t>(r)];
    for (const auto& moves : plan.sends) {
      round.send_bytes.push_back(count_bytes(moves_of_round(moves, r), device));
      round.sent += round.send_bytes.back();
    }
    for (const auto& moves : plan.receives) {
      round.receive_bytes.push_back(count_bytes(moves_of_round(moves, r), device));
      round.received += round.receive_bytes.back();
    }
  }
  return rounds;
}

void allocate_rounds(tensor::Arena& arena, std::vector<Round>& rounds) {
  for (size_t slot = 0; slot < 2 && slot < rounds.size(); ++slot) {
    int64_t sent = 0, received = 0;
    for (size_t r = slot; r < rounds.size(); r += 2) {
      sent = std::max(sent, rounds[r].sent);
      received = std::max(received, rounds[r].received);
    }
    const tensor::Tensor out = arena.allocate(tensor::DType::kU8, {sent});
    const tensor::Tensor in = arena.allocate(tensor::DType::kU8, {received});
    for (size_t r = slot; r < rounds.size(); r += 2) {
      rounds[r].out = out.rows(0, rounds[r].sent);
      rounds[r].in = in.rows(0, rounds[r].received);
    }
  }
}

// Calls visit(moves, bytes of these moves) for each peer.
template <class Visit>
void for_each_peer(const std::vector<std::vector<WeightMove>>& moves, int64_t round,
                   const std::vector<int64_t>& bytes, const tensor::Tensor& all,
                   const Visit& visit) {
  int64_t at = 0;
  for (size_t peer = 0; peer < moves.size(); ++peer) {
    visit(moves_of_round(moves[peer], round), all.rows(at, at + bytes[peer]));
    at += bytes[peer];
  }
}

}  // namespace

// Pipelined: while one round is in transfer, the next is packed and the previous one unpacked. The
// rank's local copies overlap the first transfer.
WeightTraffic move_weights(const ops::Context& ctx, const WeightPlan& plan,
                           const ParameterStore& from, const ParameterStore& to,
                           dist::Collective& ranks) {
  WeightTraffic traffic;
  if (plan.num_rounds == 0) move_local_weights(ctx, plan, from, to, traffic);
  const tensor::ArenaScope scope(ctx.arena);
  const tensor::Stream exchange =
      ctx.planning() ? ctx.stream : tensor::side_stream(ctx.stream.device);
  std::vector<Round> rounds = list_rounds(plan, ctx.device());
  allocate_rounds(ctx.arena, rounds);
  tensor::Event packed, moved[2];
  const auto unpack = [&](int64_t r) {
    const Round& round = rounds[static_cast<size_t>(r)];
    moved[r % 2].wait_on(ctx.stream);
    for_each_peer(
        plan.receives, r, round.receive_bytes, round.in,
        [&](auto moves, const tensor::Tensor& bytes) { unpack_weights(ctx, moves, to, bytes); });
  };
  for (int64_t r = 0; r < plan.num_rounds; ++r) {
    const Round& round = rounds[static_cast<size_t>(r)];
    for_each_peer(
        plan.sends, r, round.send_bytes, round.out,
        [&](auto moves, const tensor::Tensor& bytes) { pack_weights(ctx, moves, from, bytes); });
    packed.record(ctx.stream);
    packed.wait_on(exchange);
    ranks.all_to_all(exchange, round.in, round.out, round.send_bytes, round.receive_bytes);
    moved[r % 2].record(exchange);
    traffic.sent += round.sent;
    traffic.received += round.received;
    if (r == 0) {
      move_local_weights(ctx, plan, from, to, traffic);
    } else {
      unpack(r - 1);
    }
  }
  if (plan.num_rounds > 0) unpack(plan.num_rounds - 1);
  return traffic;
}

}  // namespace slimexx::model
