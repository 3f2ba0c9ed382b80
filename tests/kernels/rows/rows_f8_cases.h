// Checks rows that are rounded through FP8: values and bytes against the host, bit by bit.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/rows/f8_rows.h"
#include "tests/kernels/rows/rows_latent_cases.h"

namespace slimexx::kernels::testing {

// Slots in descending order; every fourth row has none.
inline std::vector<int32_t> some_slots(int64_t rows) {
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < rows; ++i)
    slots.push_back(i % 4 == 3 ? -1 : static_cast<int32_t>(rows - i));
  return slots;
}
// The pages that the rows give, [rows + 2, width]; unwritten elements are 0xffff.
inline Bits put_in_slots(const Bits& rows, const std::vector<int32_t>& slots, int64_t width) {
  Bits pages((slots.size() + 2) * static_cast<size_t>(width), 0xffff);
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto row = rows.begin() + static_cast<int64_t>(i) * width;
    if (slots[i] >= 0) std::copy_n(row, width, pages.begin() + slots[i] * width);
  }
  return pages;
}

// Rows of very different magnitudes; the first is zeros, the second has a NaN, the third an
// infinity, as far as they exist.
inline Bits rows_to_round(int64_t rows, int64_t stride, int64_t columns) {
  Bits x = random_bf16(rows * stride);
  spread_groups(x, stride, columns, 50, ++current_seed);
  std::fill_n(x.begin(), columns, uint16_t{0});
  if (rows > 1) x[static_cast<size_t>(stride + columns - 1)] = 0xffc1;
  if (rows > 2) x[static_cast<size_t>(2 * stride + columns / 2)] = 0xff80;
  return x;
}

inline void check_round_latent(int64_t tokens, int64_t rank, int64_t rotary) {
  current_case = "round_latent_rows, " + std::to_string(tokens) + " tokens, " +
                 std::to_string(rank) + " + " + std::to_string(rotary);
  const int64_t stride = rank + rotary + 8, row = tensor::latent_f8_row_bytes(rank, rotary) / 2;
  Bits expected = rows_to_round(tokens, stride, rank);
  const std::vector<int32_t> host_slots = some_slots(tokens);
  const Bf16Array y(expected), alone(expected), pages((tokens + 2) * row);
  const Array<int32_t> slots(host_slots);
  const Bits bytes = round_latent(expected, stride, rank, rotary, 0);
  expect_status("round_latent_rows",
                round_latent_rows(y.data(), stride, tokens, rank, rotary,
                                  {.rows = pages.data(), .slots = slots.data()}, nullptr),
                cudaSuccess);
  expect_status("round_latent_rows without pages",
                round_latent_rows(alone.data(), stride, tokens, rank, rotary, {}, nullptr),
                cudaSuccess);
  expect_bits("rows", y.get(), expected, stride);
  expect_bits("rows without pages", alone.get(), expected, stride);
  expect_bits("pages", pages.get(), put_in_slots(bytes, host_slots, row), row);
}

// latent_rows_forward with round_f8 rounds the rows that it gives without.
inline void check_rounded_latent_rows(int64_t tokens, int64_t rank, int64_t rotary) {
  current_case = "latent_rows_forward in FP8, " + std::to_string(tokens) + " tokens, " +
                 std::to_string(rank) + " + " + std::to_string(rotary);
  const HeadProblem p({tokens, 1, 1, rotary, rotary, true, false, false});
  const HeadDevice device(p, 0);
  const int64_t width = rank + rotary, row = tensor::latent_f8_row_bytes(rank, rotary) / 2;
  const std::vector<int32_t> host_slots = some_slots(tokens);
  const Bf16Array x(random_bf16(tokens * width, 3.0f)), w(random_bf16(rank, 0.3f, 1.0f)),
      plain(tokens * width), y(tokens * width), pages((tokens + 2) * row);
  const Array<int32_t> slots(host_slots);
  LatentRows rows{.y = plain.data(), .x = x.data(), .norm = w.data()};
  rows.y_stride = rows.x_stride = width;
  rows.tokens = tokens, rows.rank = rank, rows.rotary_width = rotary;
  expect_status("latent_rows_forward", latent_rows_forward(rows, device.rotary, kEps, nullptr),
                cudaSuccess);
  rows.y = y.data(), rows.pages = pages.data(), rows.slots = slots.data(), rows.round_f8 = true;
  expect_status("latent_rows_forward with round_f8",
                latent_rows_forward(rows, device.rotary, kEps, nullptr), cudaSuccess);
  Bits expected = plain.get();
  const Bits bytes = round_latent(expected, width, rank, rotary, 0);
  expect_bits("rows", y.get(), expected, width);
  expect_bits("pages", pages.get(), put_in_slots(bytes, host_slots, row), row);
}

inline void check_round_keys(int64_t tokens, int64_t dim) {
  current_case = "round_index_keys, " + std::to_string(tokens) + " keys of " + std::to_string(dim);
  const int64_t stride = dim + 8;
  Bits expected = rows_to_round(tokens, stride, dim);
  const std::vector<int32_t> host_slots = some_slots(tokens);
  const Bf16Array y(expected), alone(expected), pages((tokens + 2) * dim / 2), scales(tokens + 2);
  const Array<int32_t> slots(host_slots);
  std::vector<uint8_t> bytes(static_cast<size_t>(tokens * dim));
  Bits in_scales;
  for (int64_t i = 0; i < tokens; ++i) {
    const float scale = round_group(expected.data() + i * stride, bytes.data() + i * dim, dim);
    in_scales.push_back(static_cast<uint16_t>(tensor::f8_bits_of(scale) >> 16));
  }
  Bits in_pages(bytes.size() / 2);
  std::memcpy(in_pages.data(), bytes.data(), bytes.size());
  expect_status(
      "round_index_keys",
      round_index_keys(y.data(), stride, tokens, dim,
                       {.rows = pages.data(), .scales = scales.data(), .slots = slots.data()},
                       nullptr),
      cudaSuccess);
  expect_status("round_index_keys without pages",
                round_index_keys(alone.data(), stride, tokens, dim, {}, nullptr), cudaSuccess);
  expect_bits("keys", y.get(), expected, stride);
  expect_bits("keys without pages", alone.get(), expected, stride);
  expect_bits("pages", pages.get(), put_in_slots(in_pages, host_slots, dim / 2), dim / 2);
  expect_bits("scales", scales.get(), put_in_slots(in_scales, host_slots, 1), 1);
}

inline void check_f8_rows(bool small) {
  check_round_latent(5, 512, 64);
  check_round_latent(9, 24, 8);
  check_round_latent(4, 136, 16);
  check_rounded_latent_rows(5, 512, 64);
  check_rounded_latent_rows(9, 24, 8);
  check_round_keys(9, 128);
  check_round_keys(5, 40);
  if (small) return;
  check_round_latent(700, 512, 64);
  check_round_latent(33, 1792, 64);
  check_rounded_latent_rows(700, 512, 64);
  check_rounded_latent_rows(33, 1792, 8);
  check_round_keys(2051, 128);
  check_round_keys(700, 64);
}

}  // namespace slimexx::kernels::testing
