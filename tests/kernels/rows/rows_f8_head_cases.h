// Checks that head norms and RoPE round keys and values through FP8: bytes, scales and dequantised
// values equal those of a loop on the host.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "slimexx/tensor/float8.h"
#include "tests/kernels/rows/rows_head_cases.h"

namespace slimexx::kernels::testing {

inline float decode_f8(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

// Groups of `dim` elements.
struct QuantisedHeads {
  std::vector<uint8_t> bytes;
  Bits scales, values;  // values: dequantised
  QuantisedHeads(const Bits& x, int64_t dim)
      : bytes(x.size()), scales(x.size() / static_cast<size_t>(dim)), values(x.size()) {
    const auto width = static_cast<size_t>(dim);
    for (size_t g = 0; g < scales.size(); ++g) {
      float amax = 0;
      for (size_t i = g * width; i < (g + 1) * width; ++i) {
        const float magnitude = std::abs(to_float(x[i]));
        if (!(magnitude <= amax)) amax = magnitude;
        if (std::isnan(amax)) break;
      }
      const tensor::F8RowScale scale = tensor::f8_key_scale(amax);
      uint32_t scale_bits;
      std::memcpy(&scale_bits, &scale.scale, sizeof(scale_bits));
      scales[g] = static_cast<uint16_t>(scale_bits >> 16);
      for (size_t i = g * width; i < (g + 1) * width; ++i) {
        bytes[i] = tensor::f32_to_f8_e4m3(to_float(x[i]) * scale.factor);
        values[i] = round_to_bf16(decode_f8(bytes[i]) * scale.scale);
      }
    }
  }
};

// Columns [first, first + width) of rows.
inline Bits take_columns(const Bits& m, int64_t row, int64_t first, int64_t width) {
  Bits columns;
  for (auto from = m.begin(); from != m.end(); from += row) {
    columns.insert(columns.end(), from + first, from + first + width);
  }
  return columns;
}
inline void put_columns(Bits& m, int64_t row, int64_t first, const Bits& columns) {
  const int64_t rows = static_cast<int64_t>(m.size()) / row;
  const int64_t width = static_cast<int64_t>(columns.size()) / rows;
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(columns.begin() + r * width, width, m.begin() + r * row + first);
  }
}

// Heads of values that are all zeros, tiny, huge, or not finite; and some keys that are not finite.
inline void put_extreme_values(HeadProblem& p) {
  const int64_t dim = p.c.head_dim, first = p.row - p.c.kv_heads * dim;
  for (int64_t t = 0; t < p.c.tokens; ++t) {
    uint16_t* head = p.in.data() + t * p.row + first;
    const float factors[] = {1, 0, 0x1p-30f, 0x1p60f, 0x1p-120f, 0x1p126f, -0.0f};
    const float factor = factors[t % 7];
    for (int64_t i = 0; i < dim; ++i) {
      head[i] = round_to_bf16(std::min(std::max(to_float(head[i]), -1.9f), 1.9f) * factor);
    }
    if (t % 11 == 5) head[dim / 2] = 0x7FC0;
    if (t % 13 == 6) head[dim - 1] = 0xFF80;
    if (t % 17 == 8) head[-dim] = 0x7F80;  // the last key head
  }
}

// `expected`: the result without rounding.
inline void check_rounded_heads(const HeadProblem& p, const Bits& expected) {
  const int64_t dim = p.c.head_dim, kv = p.c.kv_heads * dim, q = p.c.query_heads * dim;
  const QuantisedHeads keys(take_columns(expected, p.row, q, kv), dim);
  const QuantisedHeads values(take_columns(expected, p.row, q + kv, kv), dim);
  Bits wanted = expected, new_in = p.in;
  put_columns(wanted, p.row, q, keys.values);
  put_columns(wanted, p.row, q + kv, values.values);
  put_columns(new_in, p.row, q + kv, values.values);
  for (const int64_t shift : {0, 1}) {
    const HeadDevice d(p, shift);
    KvPages round;
    round.round_f8 = true;
    const auto run = [&](const Bf16Array& out, int64_t heads, const Bf16Array& in) {
      expect_status("qk_norm_rotary_forward, rounded",
                    qk_norm_rotary_forward(out.data(), heads, in.data(), d.q, d.k, kEps, d.rotary,
                                           round, d.shape, 0),
                    cudaSuccess);
    };
    const int64_t heads = p.row / dim, narrow = heads - p.c.kv_heads;
    const Bf16Array in(p.in, shift), out(p.c.tokens * p.row, shift);
    run(out, heads, in);
    expect_bits("rounded", out.get(), wanted, p.row);
    expect_bits("input of rounded", in.get(), p.in, p.row);
    const Bf16Array turned(p.c.tokens * narrow * dim, shift);
    run(turned, narrow, in);
    expect_bits("rounded queries and keys", turned.get(),
                pack_rows(wanted, p.c.tokens, narrow * dim, p.row), narrow * dim);
    expect_bits("values rounded in the input", in.get(), new_in, p.row);
    const Bf16Array both(p.in, shift);
    run(both, heads, both);
    expect_bits("rounded in place", both.get(), wanted, p.row);
  }
}

inline void check_f8_pages(const HeadProblem& p, const Bits& expected, int64_t page) {
  const int64_t dim = p.c.head_dim, kv = p.c.kv_heads * dim, q = p.c.query_heads * dim;
  const QuantisedHeads keys(take_columns(expected, p.row, q, kv), dim);
  const QuantisedHeads values(take_columns(expected, p.row, q + kv, kv), dim);
  const int64_t slots = (p.c.tokens + page - 1) / page * page;
  const std::vector<uint8_t> poison(static_cast<size_t>(slots * kv), 0x34);
  const Bits no_scales(static_cast<size_t>(slots * p.c.kv_heads), 0x1234);
  const Bits untouched(static_cast<size_t>(p.c.tokens * (q + kv)), 0x1234);
  const HeadDevice d(p, 0);
  const Bf16Array in(p.in), out(untouched), k_scales(no_scales), v_scales(no_scales);
  const Array<uint8_t> k(poison), v(poison);
  const Array<int32_t> device_slots(p.slots);
  const KvPages pages{k.data(),        v.data(), device_slots.data(), true, k_scales.data(),
                      v_scales.data(), page};
  expect_status("qk_norm_rotary_forward with FP8 pages",
                qk_norm_rotary_forward(out.data(), p.c.query_heads + p.c.kv_heads, in.data(), d.q,
                                       d.k, kEps, d.rotary, pages, d.shape, 0),
                cudaSuccess);
  Bits queries = untouched;
  put_columns(queries, q + kv, 0, take_columns(expected, p.row, 0, q));
  expect_bits("queries beside FP8 pages", out.get(), queries, q + kv);
  expect_bits("input beside FP8 pages", in.get(), p.in, p.row);
  const auto check = [&](const char* what, const Array<uint8_t>& got, const Bf16Array& got_scales,
                         const QuantisedHeads& heads) {
    std::vector<uint8_t> bytes = poison;
    Bits scales = no_scales;
    for (int64_t t = 0; t < p.c.tokens; ++t) {
      const int64_t slot = p.slots[static_cast<size_t>(t)];
      if (slot < 0) continue;
      std::copy_n(heads.bytes.begin() + t * kv, kv, bytes.begin() + slot * kv);
      for (int64_t h = 0; h < p.c.kv_heads; ++h) {
        scales[static_cast<size_t>((slot / page * p.c.kv_heads + h) * page + slot % page)] =
            heads.scales[static_cast<size_t>(t * p.c.kv_heads + h)];
      }
    }
    const std::vector<uint8_t> device = got.get();
    expect_bits(what, Bits(device.begin(), device.end()), Bits(bytes.begin(), bytes.end()), kv);
    expect_bits(what, got_scales.get(), scales, page);
  };
  check("FP8 keys", k, k_scales, keys);
  check("FP8 values", v, v_scales, values);
}

inline void check_f8_heads(const HeadCase& c) {
  HeadProblem p(c);
  put_extreme_values(p);
  const Bits out = run_heads(p);
  check_rounded_heads(p, out);
  for (const int64_t page : {1, 16, 128}) check_f8_pages(p, out, page);
}

}  // namespace slimexx::kernels::testing
