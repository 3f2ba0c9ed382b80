#include "microbatch.h"

#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor upload_ints(const ops::Context& ctx, const std::vector<int32_t>& values) {
  const Tensor t = ctx.arena.allocate(DType::kI32, {static_cast<int64_t>(values.size())});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

}  // namespace

void build_microbatch(const ops::Context& ctx, std::span<const Sample> samples,
                      std::span<const int64_t> indices, Microbatch& out) {
  std::vector<int32_t> tokens, positions, rows, targets;
  out.cu_seqlens = {0};
  out.cu_rows = {0};
  for (int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    const auto length = static_cast<int64_t>(sample.tokens.size());
    SLX_CHECK(sample.response_length >= 1 && sample.response_length < length,
              "response {} of {} tokens", sample.response_length, length);
    const auto start = static_cast<int32_t>(tokens.size());
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(sample.tokens[static_cast<size_t>(i)]);
      positions.push_back(static_cast<int32_t>(i));
    }
    // The row before a response token predicts it.
    for (int64_t i = length - sample.response_length; i < length; ++i) {
      rows.push_back(start + static_cast<int32_t>(i) - 1);
      targets.push_back(sample.tokens[static_cast<size_t>(i)]);
    }
    out.cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
    out.cu_rows.push_back(static_cast<int32_t>(rows.size()));
  }
  out.num_tokens = static_cast<int64_t>(tokens.size());
  out.num_rows = static_cast<int64_t>(rows.size());
  out.batch.tokens = upload_ints(ctx, tokens);
  out.batch.positions = upload_ints(ctx, positions);
  out.rows = upload_ints(ctx, rows);
  out.targets = upload_ints(ctx, targets);
  out.batch.attention.cu_seqlens = out.cu_seqlens;
  if (ctx.device().is_cpu()) return;
  out.batch.attention.device_cu_seqlens = upload_ints(ctx, out.cu_seqlens);
  out.device_cu_rows = upload_ints(ctx, out.cu_rows);
}

Tensor upload_rows(const ops::Context& ctx, const Microbatch& microbatch,
                   std::span<const Sample> samples, std::span<const int64_t> indices,
                   std::vector<float> Sample::*field) {
  if (!indices.empty() && (samples[static_cast<size_t>(indices[0])].*field).empty()) return {};
  std::vector<float> values;
  for (int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    const std::vector<float>& own = sample.*field;
    SLX_CHECK_EQ(static_cast<int64_t>(own.size()), sample.response_length);
    values.insert(values.end(), own.begin(), own.end());
  }
  const Tensor t = ctx.arena.allocate(DType::kF32, {microbatch.num_rows});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

}  // namespace slimexx::train
