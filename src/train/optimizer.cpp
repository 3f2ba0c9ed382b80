#include "slimexx/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "slimexx/base/check.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/host.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::train {
namespace {

using tensor::DType;

constexpr int64_t kSectionAlignment = 256;

int64_t round_up(int64_t bytes) {
  return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

DType moment_dtype(const OptimizerOptions& options) {
  if (options.state_dtype == "float32") return DType::kF32;
  SLX_CHECK(options.state_dtype == "bfloat16", "state_dtype {}", options.state_dtype);
  return DType::kBF16;
}

// Rounded to nearest, a moment in bf16 that decays by less than 2^-8 of itself stays where it is.
void warn_of_slow_decay(const OptimizerOptions& options) {
  const double beta = std::max(options.adam_beta1, options.adam_beta2);
  if (moment_dtype(options) == DType::kBF16 && beta > 1 - 0x1p-8)
    log_warn("under optimizer.state_dtype bfloat16 a moment of beta {} may never decrease", beta);
}

int64_t count_elements(const std::vector<OwnedPiece>& pieces) {
  return pieces.empty() ? 0 : pieces.back().begin + pieces.back().range.size();
}

const model::ParameterGroup& find_trained_group(const model::ParameterStore& store) {
  const auto group = std::ranges::find(store.groups(), true, &model::ParameterGroup::trainable);
  SLX_CHECK(group != store.groups().end(), "every parameter is frozen");
  SLX_CHECK_EQ(std::ranges::count(store.groups(), true, &model::ParameterGroup::trainable), 1);
  return *group;
}

std::vector<dist::Range> check_parts(std::vector<dist::Range> parts, int64_t num_elements) {
  if (parts.empty()) return {{0, num_elements}};
  std::vector<dist::Range> sorted = parts;
  std::ranges::sort(sorted, {}, &dist::Range::begin);
  int64_t covered = 0;
  for (const auto& part : sorted) {
    SLX_CHECK_EQ(part.begin, covered);
    covered = part.end;
  }
  SLX_CHECK_EQ(covered, num_elements);
  return parts;
}

}  // namespace

ShardedAdamW::ShardedAdamW(model::ParameterStore& store, dist::Collective& host,
                           const dist::Groups& groups, const OptimizerOptions& options,
                           tensor::Device device, std::vector<dist::Range> parts)
    : store_(store),
      group_(find_trained_group(store)),
      host_(host),
      dp_(groups.dp),
      options_(options),
      parts_(check_parts(std::move(parts), group_.num_elements)),
      slices_(split_parts(parts_, dp_.size())),
      pieces_(list_owned_pieces(slices_, dp_.rank(), dp_.size())),
      scratch_(device, measure_reduction(device), "gradient exchange"),
      no_scratch_(device, 0, "copies"),
      exchange_stream_(tensor::side_stream(device)) {
  const int64_t n = count_elements(pieces_);
  const DType moments = moment_dtype(options);
  const int64_t master_bytes = round_up(n * tensor::dtype_bytes(DType::kF32));
  const int64_t moment_bytes = round_up(n * tensor::dtype_bytes(moments));
  state_ = tensor::Buffer(device, master_bytes + 2 * moment_bytes, "optimizer state");
  master_ = state_.view(DType::kF32, {n});
  exp_avg_ = state_.view(moments, {n}, master_bytes);
  exp_avg_sq_ = state_.view(moments, {n}, master_bytes + moment_bytes);
  if (host_.rank() == 0) warn_of_slow_decay(options_);
  take_master();
}

std::span<const dist::Range> ShardedAdamW::slices_of(size_t part) const {
  const auto ranks = static_cast<size_t>(dp_.size());
  return std::span(slices_).subspan(part * ranks, ranks);
}

void ShardedAdamW::reduce_part(tensor::Stream stream, tensor::Arena& scratch, size_t part) const {
  dp_.reduce_scatter_sum(stream, scratch, group_.gradients, slices_of(part), dist::SumOrder::kAny);
}

int64_t ShardedAdamW::measure_reduction(tensor::Device device) const {
  tensor::Arena plan = tensor::Arena::for_planning(device, "gradient exchange");
  for (size_t part = 0; part < parts_.size(); ++part)
    reduce_part(tensor::planning_stream(device), plan, part);
  return plan.high_water_bytes();
}

void ShardedAdamW::start_gradient_part(const ops::Context& ctx, int64_t index) {
  SLX_CHECK_EQ(static_cast<size_t>(index), num_started_parts_);
  SLX_CHECK_LT(num_started_parts_, parts_.size());
  if (dp_.is_queued()) {
    ready_.record(ctx.stream);
    ready_.wait_on(exchange_stream_);
  }
  reduce_part(dp_.is_queued() ? exchange_stream_ : ctx.stream, scratch_, num_started_parts_);
  ++num_started_parts_;
}

void ShardedAdamW::start_remaining_parts(const ops::Context& ctx) {
  while (num_started_parts_ < parts_.size())
    start_gradient_part(ctx, static_cast<int64_t>(num_started_parts_));
}

double ShardedAdamW::reduce_gradients(const ops::Context& ctx) {
  start_remaining_parts(ctx);
  num_started_parts_ = 0;
  if (dp_.is_queued()) {
    summed_.record(exchange_stream_);
    summed_.wait_on(ctx.stream);
  }
  double sum[1] = {ops::sum_of_squares_of_ranges(ctx, group_.gradients, owned_ranges())};
  dist::all_reduce_sum(host_, sum);
  return std::sqrt(sum[0]);
}

double ShardedAdamW::weight_norm(const ops::Context& ctx) const {
  const ops::ElementRange whole{0, master_.num_elements()};
  double sum[1] = {ops::sum_of_squares_of_ranges(ctx, master_, {&whole, 1})};
  dist::all_reduce_sum(host_, sum);
  return std::sqrt(sum[0]);
}

void ShardedAdamW::step(const ops::Context& ctx, double learning_rate, double gradient_norm) {
  ++num_steps_;
  ops::AdamWStep adamw{.lr = static_cast<float>(learning_rate),
                       .beta1 = static_cast<float>(options_.adam_beta1),
                       .beta2 = static_cast<float>(options_.adam_beta2),
                       .eps = static_cast<float>(options_.adam_eps),
                       .weight_decay = 0,  // by range
                       .step = num_steps_,
                       .gradient_scale = 1};
  if (options_.clip_grad > 0 && gradient_norm > options_.clip_grad) {
    adamw.gradient_scale = static_cast<float>(options_.clip_grad / (gradient_norm + 1e-6));
  }
  ops::adamw_ranges(ctx, group_.weights, master_, exp_avg_, exp_avg_sq_, group_.gradients,
                    decay_ranges(), adamw);
  gather(ctx, group_.weights);
}

std::vector<ops::ElementRange> ShardedAdamW::owned_ranges() const {
  std::vector<ops::ElementRange> ranges;
  for (const OwnedPiece& piece : pieces_) ranges.push_back({piece.range.begin, piece.range.end});
  return ranges;
}

// What this rank owns of every parameter, as its state counts.
std::vector<ops::DecayRange> ShardedAdamW::decay_ranges() const {
  std::vector<ops::DecayRange> ranges;
  for (const OwnedPiece& piece : pieces_) {
    const int64_t shift = piece.range.begin - piece.begin;
    for (const auto& info : store_.infos()) {
      if (&store_.group_of(info) != &group_) continue;
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
  ops::sum_of_squares_of_ranges(ctx, group_.gradients, owned_ranges());
  const ops::ElementRange whole{0, master_.num_elements()};  // of weight_norm
  ops::sum_of_squares_of_ranges(ctx, master_, {&whole, 1});
  ops::adamw_ranges(ctx, group_.weights, master_, exp_avg_, exp_avg_sq_, group_.gradients,
                    decay_ranges(), {});
}

void ShardedAdamW::gather(const ops::Context& ctx, const tensor::Tensor& flat) {
  dp_.all_gather_ranges(ctx.stream, flat, slices_);
}

void ShardedAdamW::gather_gradients(const ops::Context& ctx) { gather(ctx, group_.gradients); }

void ShardedAdamW::take_master() {
  const ops::Context ctx = ops::compute_context(no_scratch_);
  for (const OwnedPiece& piece : pieces_)
    ops::copy(ctx, master_.rows(piece.begin, piece.begin + piece.range.size()),
              group_.weights.rows(piece.range.begin, piece.range.end));
}

void ShardedAdamW::publish_master() {
  const ops::Context ctx = ops::compute_context(no_scratch_);
  for (const OwnedPiece& piece : pieces_)
    ops::copy(ctx, group_.weights.rows(piece.range.begin, piece.range.end),
              master_.rows(piece.begin, piece.begin + piece.range.size()));
  gather(ctx, group_.weights);
}

}  // namespace slimexx::train
