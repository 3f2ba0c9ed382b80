#include "slimexx/ops/float8.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/float8_values.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kRowGrain = 16;

float round_bf16(float x) { return tensor::bf16_to_f32(tensor::f32_to_bf16(x)); }

// Calls visit(row, group, x, scale) for each row and group of 128 columns.
template <class Visit>
void for_each_group(const Tensor& x, const Visit& visit) {
  parallel_for(x.dim(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t group = 0; group < x.dim(1) / kF8Columns; ++group) {
        const float* from = x.f32() + row * x.stride(0) + group * kF8Columns;
        visit(row, group, from, tensor::f8_row_scale(f8_largest(from, kF8Columns)));
      }
    }
  });
}

// A block: up to two units of rows, and its columns.
struct BlockRows {
  const int32_t* units;
  int64_t per_block, unit_rows, num_rows;
  template <class Visit>
  void for_each_row(const Visit& visit) const {
    for (int64_t u = 0; u < per_block; ++u) {
      if (units[u] < 0) continue;
      const int64_t first = units[u] * unit_rows;
      for (int64_t row = first; row < std::min(first + unit_rows, num_rows); ++row) visit(row);
    }
  }
};

}  // namespace

void quantise_rows(Tensor values, Tensor scales, Tensor x) {
  for_each_group(x,
                 [&](int64_t row, int64_t group, const float* from, const tensor::F8RowScale& s) {
                   scales.f32()[group * scales.dim(1) + row] = s.scale;
                   uint8_t* to = values.data<uint8_t>() + row * x.dim(1) + group * kF8Columns;
                   for (int64_t i = 0; i < kF8Columns; ++i)
                     to[i] = tensor::f32_to_f8_e4m3(from[i] * s.factor);
                 });
}

void round_rows(Tensor y, Tensor x) {
  const std::array<float, 256>& value = f8_values();
  for_each_group(x,
                 [&](int64_t row, int64_t group, const float* from, const tensor::F8RowScale& s) {
                   float* to = y.f32() + row * y.stride(0) + group * kF8Columns;
                   for (int64_t i = 0; i < kF8Columns; ++i)
                     to[i] = value[tensor::f32_to_f8_e4m3(from[i] * s.factor)] * s.scale;
                 });
}

void quantise_blocks(const QuantisedBlocks& b) {
  const int64_t rows = b.plain.dim(0), columns = b.plain.dim(1);
  const int64_t unit_rows = (rows + b.scales.dim(0) - 1) / b.scales.dim(0);
  const int64_t width = columns / b.scales.dim(1), per_block = b.units.dim(1);
  const std::array<float, 256>& value_of = f8_values();
  const bool has_rounded = b.rounded.defined();
  std::atomic<int64_t> changed{0};
  parallel_for(b.units.dim(0), 1, [&](int64_t begin, int64_t end) {
    int64_t own_changed = 0;
    for (int64_t block = begin; block < end; ++block) {
      const BlockRows block_rows{b.units.i32() + block * per_block, per_block, unit_rows, rows};
      for (int64_t first = 0; first < columns; first += width) {
        float amax = 0;
        block_rows.for_each_row([&](int64_t row) {
          const float* x = b.plain.f32() + row * columns + first;
          amax = std::bit_cast<float>(
              std::max(f8_magnitude(amax), f8_magnitude(f8_largest(x, width))));
        });
        const float scale = tensor::f8_scale(round_bf16(amax), b.rule);
        block_rows.for_each_row([&](int64_t row) {
          b.scales.f32()[row / unit_rows * b.scales.dim(1) + first / width] = scale;
          const float* x = b.plain.f32() + row * columns + first;
          float* rounded = has_rounded ? b.rounded.f32() + row * columns + first : nullptr;
          uint8_t* q = b.values.data<uint8_t>() + row * columns + first;
          for (int64_t i = 0; i < width; ++i) {
            const uint8_t value = tensor::f32_to_f8_e4m3(round_bf16(x[i]) / scale);
            own_changed += value != q[i] ? 1 : 0;
            q[i] = value;
            if (has_rounded) rounded[i] = value_of[value] * scale;
          }
        });
      }
    }
    changed += own_changed;
  });
  if (b.changed.defined()) *b.changed.data<int64_t>() += changed;
}

void dequantise_blocks(Tensor plain, Tensor values, Tensor scales) {
  const int64_t rows = plain.dim(0), columns = plain.dim(1);
  const int64_t unit_rows = (rows + scales.dim(0) - 1) / scales.dim(0);
  const int64_t width = columns / scales.dim(1);
  const std::array<float, 256>& value = f8_values();
  parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* own = scales.f32() + row / unit_rows * scales.stride(0);
      const uint8_t* q = values.data<uint8_t>() + row * values.stride(0);
      float* to = plain.f32() + row * columns;
      for (int64_t i = 0; i < columns; ++i) to[i] = value[q[i]] * own[i / width];
    }
  });
}

}  // namespace slimexx::ops::cpu
