#include "slimexx/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/host.h"
#include "slimexx/model/boxes.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kSectionAlignment = 256;

int64_t round_up(int64_t bytes) {
  return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

DType moment_dtype(const OptimizerOptions& options) {
  if (options.state_dtype == "float32") return DType::kF32;
  SLX_CHECK(options.state_dtype == "bfloat16", "state_dtype {} is not supported",
            options.state_dtype);
  return DType::kBF16;
}

// A bf16 moment, rounded to nearest, does not change if it decays by less than 2^-8 of itself.
void warn_of_slow_decay(const OptimizerOptions& options) {
  const double beta = std::max(options.adam_beta1, options.adam_beta2);
  if (moment_dtype(options) == DType::kBF16 && beta > 1 - 0x1p-8)
    log_warn("with optimizer.state_dtype bfloat16 and beta {}, a moment can stop decreasing", beta);
}

std::vector<dist::Range> parts_of_group(std::span<const GradientPart> parts, size_t group) {
  std::vector<dist::Range> ranges;
  for (const GradientPart& part : parts)
    if (part.group == group) ranges.push_back(part.range);
  return ranges;
}

void check_cover(std::vector<dist::Range> parts, int64_t num_elements) {
  std::ranges::sort(parts, {}, &dist::Range::begin);
  int64_t covered = 0;
  for (const auto& part : parts) {
    SLX_CHECK_EQ(part.begin, covered);
    covered = part.end;
  }
  SLX_CHECK_EQ(covered, num_elements);
}

// One part for each trainable group.
std::vector<GradientPart> list_whole_groups(const model::ParameterStore& store) {
  std::vector<GradientPart> parts;
  for (size_t g = 0; g < store.groups().size(); ++g) {
    const model::ParameterGroup& group = store.groups()[g];
    if (group.trainable) parts.push_back({.range = {0, group.num_elements}, .group = g});
  }
  return parts;
}

void append_range(std::vector<ops::ElementRange>& ranges, int64_t begin, int64_t end) {
  if (begin < end) ranges.push_back({begin, end});
}

}  // namespace

ShardedAdamW::ShardedAdamW(model::ParameterStore& store, dist::Collective& host,
                           const dist::Groups& groups, const OptimizerOptions& options,
                           tensor::Device device, std::vector<GradientPart> parts)
    : store_(store),
      host_(host),
      options_(options),
      scratch_(device, 0, "gradient exchange"),
      no_scratch_(device, 0, "copies"),
      exchange_stream_(tensor::side_stream(device)) {
  cut_groups(groups, parts.empty() ? list_whole_groups(store) : parts);
  scratch_.reserve(measure_reduction(device));
  allocate_state(device);
  if (host_.rank() == 0) warn_of_slow_decay(options_);
  take_master();
}

namespace {

dist::Collective& ranks_that_sum(const dist::Groups& groups, model::ReduceGroup group) {
  switch (group) {
    case model::ReduceGroup::kDense:
      return groups.dp_cp;
    case model::ReduceGroup::kReplicated:
      return groups.tp_dp_cp;
    case model::ReduceGroup::kExpert:
      return groups.edp;
  }
  SLX_CHECK(false, "there is no reduce group {}", static_cast<int>(group));
}

}  // namespace

void ShardedAdamW::cut_groups(const dist::Groups& groups, const std::vector<GradientPart>& parts) {
  for (size_t g = 0; g < store_.groups().size(); ++g) {
    const model::ParameterGroup& group = store_.groups()[g];
    OwnedGroup owned;
    owned.parameters = &group;
    owned.ranks = &ranks_that_sum(groups, group.reduce_group);
    std::vector<dist::Range> ranges = parts_of_group(parts, g);
    if (group.trainable)
      check_cover(ranges, group.num_elements);
    else
      ranges = {{0, group.num_elements}};
    owned.slices = split_parts(ranges, owned.ranks->size());
    owned.pieces = list_owned_pieces(owned.slices, owned.ranks->rank(), owned.ranks->size());
    groups_.push_back(std::move(owned));
  }
  for (const GradientPart& part : parts) {
    const auto ranks = groups_[part.group].ranks->size();
    parts_.push_back({part.group, split_parts({&part.range, 1}, ranks)});
  }
}

// Per group: the master, then the first and the second moments.
void ShardedAdamW::allocate_state(tensor::Device device) {
  const DType moments = moment_dtype(options_);
  const auto master_bytes = [](int64_t n) {
    return round_up(n * tensor::dtype_bytes(DType::kF32));
  };
  const auto moment_bytes = [&](int64_t n) { return round_up(n * tensor::dtype_bytes(moments)); };
  int64_t total = 0, most = 1;  // most: elements of the largest group
  for (const OwnedGroup& group : groups_) {
    const int64_t n = count_elements(group.pieces);
    if (!group.is_trained()) continue;
    total += master_bytes(n) + 2 * moment_bytes(n);
    most = std::max(most, n);
  }
  if (options_.optimizer_cpu_offload)
    host_state_.emplace(device, total, tensor::compute_dtype(device),
                        std::min(most, HostState::kChunkElements));
  else
    state_ = tensor::Buffer(device, total, "optimizer state");
  int64_t at = 0;
  const auto view = [&](DType dtype, int64_t n) {
    return host_state_ ? host_state_->view(dtype, n, at) : state_.view(dtype, {n}, at);
  };
  for (OwnedGroup& group : groups_) {
    if (!group.is_trained()) continue;
    const int64_t n = count_elements(group.pieces);
    group.master = view(DType::kF32, n);
    at += master_bytes(n);
    group.exp_avg = view(moments, n);
    at += moment_bytes(n);
    group.exp_avg_sq = view(moments, n);
    at += moment_bytes(n);
  }
}

void ShardedAdamW::reduce_part(tensor::Stream stream, tensor::Arena& scratch,
                               const Part& part) const {
  const OwnedGroup& group = groups_[part.group];
  group.ranks->reduce_scatter_sum(stream, scratch, group.parameters->gradients, part.slices,
                                  dist::SumOrder::kAny);
}

int64_t ShardedAdamW::measure_reduction(tensor::Device device) const {
  tensor::Arena plan = tensor::Arena::for_planning(device, "gradient exchange");
  for (const Part& part : parts_) reduce_part(tensor::planning_stream(device), plan, part);
  return plan.high_water_bytes();
}

bool ShardedAdamW::sums_beside() const {
  return std::ranges::any_of(
      parts_, [&](const Part& part) { return groups_[part.group].ranks->is_queued(); });
}

void ShardedAdamW::start_gradient_part(const ops::Context& ctx, int64_t index) {
  SLX_CHECK_EQ(static_cast<size_t>(index), num_started_parts_);
  SLX_CHECK_LT(num_started_parts_, parts_.size());
  const Part& part = parts_[num_started_parts_];
  const bool is_queued = groups_[part.group].ranks->is_queued();
  if (is_queued) {
    ready_.record(ctx.stream);
    ready_.wait_on(exchange_stream_);
  }
  reduce_part(is_queued ? exchange_stream_ : ctx.stream, scratch_, part);
  ++num_started_parts_;
}

void ShardedAdamW::start_remaining_parts(const ops::Context& ctx) {
  while (num_started_parts_ < parts_.size())
    start_gradient_part(ctx, static_cast<int64_t>(num_started_parts_));
}

double ShardedAdamW::reduce_gradients(const ops::Context& ctx) {
  start_remaining_parts(ctx);
  num_started_parts_ = 0;
  if (sums_beside()) {
    summed_.record(exchange_stream_);
    summed_.wait_on(ctx.stream);
  }
  double sum[1] = {sum_squares_of_gradients(ctx)};
  dist::all_reduce_sum(host_, sum);
  return std::sqrt(sum[0]);
}

double ShardedAdamW::weight_norm(const ops::Context& ctx) const {
  double sum[1] = {sum_squares_of_masters(ctx)};
  dist::all_reduce_sum(host_, sum);
  return std::sqrt(sum[0]);
}

// In a fixed order: by group, then by range.
double ShardedAdamW::sum_squares_of_gradients(const ops::Context& ctx) const {
  double sum = 0;
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      sum += ops::sum_of_squares_of_ranges(ctx, group.parameters->gradients, counted_ranges(group));
  return sum;
}

double ShardedAdamW::sum_squares_of_masters(const ops::Context& ctx) const {
  tensor::Arena no_scratch({}, 0, "sums in host memory");
  const ops::Context where = host_state_ ? ops::compute_context(no_scratch) : ctx;
  double sum = 0;
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      sum += ops::sum_of_squares_of_ranges(where, group.master, counted_state(group));
  return sum;
}

void ShardedAdamW::step(const ops::Context& ctx, double learning_rate, double gradient_norm) {
  ++num_steps_;
  ops::AdamWStep adamw{.lr = static_cast<float>(learning_rate),
                       .beta1 = static_cast<float>(options_.adam_beta1),
                       .beta2 = static_cast<float>(options_.adam_beta2),
                       .eps = static_cast<float>(options_.adam_eps),
                       .weight_decay = 0,  // set for each range
                       .step = num_steps_,
                       .gradient_scale = 1};
  if (options_.clip_grad > 0 && gradient_norm > options_.clip_grad) {
    adamw.gradient_scale = static_cast<float>(options_.clip_grad / (gradient_norm + 1e-6));
  }
  update(ctx, adamw);
  gather_weights(ctx);
}

void ShardedAdamW::update(const ops::Context& ctx, const ops::AdamWStep& adamw) {
  if (!host_state_) return update_on_device(ctx, adamw);
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      host_state_->update(ctx,
                          {group.master, group.exp_avg, group.exp_avg_sq, group.parameters->weights,
                           group.parameters->gradients},
                          decay_ranges(group), adamw);
}

void ShardedAdamW::update_on_device(const ops::Context& ctx, const ops::AdamWStep& adamw) const {
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      ops::adamw_ranges(ctx, group.parameters->weights, group.master, group.exp_avg,
                        group.exp_avg_sq, group.parameters->gradients, decay_ranges(group), adamw);
}

// This rank's contribution to a norm over the group: its pieces except replicas that another rank
// counts. Gaps between parameters are zero.
std::vector<ops::ElementRange> ShardedAdamW::counted_ranges(const OwnedGroup& group) const {
  std::vector<ops::ElementRange> ranges;
  for (const OwnedPiece& piece : group.pieces) {
    int64_t begin = piece.range.begin;
    for (const auto& info : store_.infos()) {
      if (&store_.group_of(info) != group.parameters) continue;
      if (info.offset + info.num_elements() <= begin || info.offset >= piece.range.end) continue;
      for (const dist::Range& copied : model::list_copied_ranges(info)) {
        if (info.offset + copied.end <= begin || info.offset + copied.begin >= piece.range.end)
          continue;
        append_range(ranges, begin, info.offset + copied.begin);
        begin = info.offset + copied.end;
      }
    }
    append_range(ranges, begin, piece.range.end);
  }
  return ranges;
}

// counted_ranges() as positions in the state, with adjacent ranges merged.
std::vector<ops::ElementRange> ShardedAdamW::counted_state(const OwnedGroup& group) const {
  std::vector<ops::ElementRange> ranges;
  auto piece = group.pieces.begin();
  for (const ops::ElementRange& counted : counted_ranges(group)) {
    while (piece->range.end < counted.end) ++piece;
    const int64_t shift = piece->range.begin - piece->begin;
    const ops::ElementRange range{counted.begin - shift, counted.end - shift};
    if (!ranges.empty() && ranges.back().end == range.begin)
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
  }
  return ranges;
}

// This rank's range of every parameter, as positions in its state.
std::vector<ops::DecayRange> ShardedAdamW::decay_ranges(const OwnedGroup& group) const {
  std::vector<ops::DecayRange> ranges;
  for (const OwnedPiece& piece : group.pieces) {
    const int64_t shift = piece.range.begin - piece.begin;
    for (const auto& info : store_.infos()) {
      if (&store_.group_of(info) != group.parameters) continue;
      const int64_t begin = std::max(piece.range.begin, info.offset);
      const int64_t end = std::min(piece.range.end, info.offset + info.num_elements());
      if (begin >= end) continue;
      ranges.push_back(
          {.begin = begin - shift,
           .end = end - shift,
           .weight_decay = info.decayed ? static_cast<float>(options_.weight_decay) : 0.0f,
           .shift = shift});
    }
  }
  return ranges;
}

void ShardedAdamW::plan_step(const ops::Context& ctx) const {
  SLX_CHECK(ctx.planning());
  sum_squares_of_gradients(ctx);
  if (host_state_) return;  // it uses no device memory
  sum_squares_of_masters(ctx);
  update_on_device(ctx, {});
}

void ShardedAdamW::gather_weights(const ops::Context& ctx) const {
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      group.ranks->all_gather_ranges(ctx.stream, group.parameters->weights, group.slices);
}

void ShardedAdamW::gather_gradients(const ops::Context& ctx) {
  for (const OwnedGroup& group : groups_)
    if (group.is_trained())
      group.ranks->all_gather_ranges(ctx.stream, group.parameters->gradients, group.slices);
}

void ShardedAdamW::reset_moments() {
  tensor::Arena no_scratch({}, 0, "moments in host memory");
  const ops::Context ctx = ops::compute_context(host_state_ ? no_scratch : no_scratch_);
  for (const OwnedGroup& group : groups_) {
    if (!group.is_trained()) continue;
    ops::fill_zero(ctx, group.exp_avg);
    ops::fill_zero(ctx, group.exp_avg_sq);
  }
  num_steps_ = 0;
}

void ShardedAdamW::take_master() {
  const ops::Context ctx = ops::compute_context(no_scratch_);
  for (const OwnedGroup& group : groups_) {
    if (!group.is_trained()) continue;
    for (const OwnedPiece& piece : group.pieces) {
      const Tensor master = group.master.rows(piece.begin, piece.begin + piece.range.size());
      const Tensor weights = group.parameters->weights.rows(piece.range.begin, piece.range.end);
      if (host_state_)
        host_state_->read_weights(master, weights);
      else
        ops::copy(ctx, master, weights);
    }
  }
}

void ShardedAdamW::publish_master() {
  const ops::Context ctx = ops::compute_context(no_scratch_);
  for (const OwnedGroup& group : groups_) {
    if (!group.is_trained()) continue;
    for (const OwnedPiece& piece : group.pieces) {
      const Tensor master = group.master.rows(piece.begin, piece.begin + piece.range.size());
      const Tensor weights = group.parameters->weights.rows(piece.range.begin, piece.range.end);
      if (host_state_)
        host_state_->write_weights(weights, master);
      else
        ops::copy(ctx, weights, master);
    }
  }
  gather_weights(ctx);
}

}  // namespace slimexx::train
