// Checks LayerNorm, the columns of heads, rows in pages, a vocabulary's shard and latent rows.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/rows/rows_head_cases.h"
#include "tests/kernels/rows/rows_norm_cases.h"

namespace slimexx::kernels::testing {

inline Bits run_layer_norm(const Bits& x, const Bits& w, const Bits& b, int64_t rows, int64_t width,
                           int64_t padding = 0, bool in_place = false) {
  const int64_t stride = width + padding;
  const Bf16Array from(spread_rows(x, rows, width, stride)), dw(w), db(b), own(rows * stride);
  const Bf16Array& to = in_place ? from : own;
  expect_status("layer_norm_forward",
                layer_norm_forward(to.data(), stride, from.data(), stride, dw.data(), db.data(),
                                   rows, width, kEps, nullptr),
                cudaSuccess);
  return pack_rows(to.get(), rows, width, stride);
}

inline void check_layer_norm(int64_t rows, int64_t width) {
  current_case = "layer_norm_forward [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  const Bits x = random_bf16(rows * width, 3.0f, 2.0f), w = random_bf16(width, 0.3f, 1.0f),
             b = random_bf16(width);
  std::vector<Exact> expected;
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* own = x.data() + row * width;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < width; ++i) mean += to_float(own[i]) / double(width);
    for (int64_t i = 0; i < width; ++i)
      square += (to_float(own[i]) - mean) * (to_float(own[i]) - mean) / double(width);
    const double r = 1 / std::sqrt(square + double{kEps});
    for (int64_t i = 0; i < width; ++i) {
      const double factor = to_float(w[i]) * r, bias = to_float(b[i]);
      expected.push_back(
          {factor * (to_float(own[i]) - mean) + bias,
           std::abs(factor) * (std::abs(to_float(own[i])) + std::abs(mean)) + std::abs(bias)});
    }
  }
  const Bits y = run_layer_norm(x, w, b, rows, width);
  if (width > 1) expect_close("values", y, expected, width);
  expect_bits("again", run_layer_norm(x, w, b, rows, width), y, width);
  expect_bits("in place", run_layer_norm(x, w, b, rows, width, 0, true), y, width);
  expect_bits("stride + 8", run_layer_norm(x, w, b, rows, width, 8), y, width);
  expect_bits("stride + 1", run_layer_norm(x, w, b, rows, width, 1), y, width);
  expect_bits("row alone", run_layer_norm(take_rows(x, rows - 1, 1, width), w, b, 1, width),
              take_rows(y, rows - 1, 1, width), width);
}

// Operations on some columns of the heads of x and y. The other elements of the wider heads stay
// unchanged.
inline void check_head_columns(int64_t tokens, int64_t heads, int64_t width) {
  const int64_t x_head = width + 8, y_head = width + 16;
  current_case = "head columns, " + std::to_string(tokens) + " tokens, " + std::to_string(heads) +
                 " heads of " + std::to_string(width);
  const Bits host = random_bf16(tokens * heads * x_head);
  const Bf16Array x(host), y(tokens * heads * y_head), shared(tokens * heads * y_head),
      sums(tokens * (width + 8));
  const HeadRows from{x.data() + 8, heads * x_head, x_head};
  const HeadRows one_head{x.data() + 8, heads * x_head, 0};
  expect_status("copy_head_columns",
                copy_head_columns({y.data() + 8, heads * y_head, y_head}, from, tokens, heads,
                                  width, nullptr),
                cudaSuccess);
  expect_status("copy_head_columns of one head",
                copy_head_columns({shared.data() + 8, heads * y_head, y_head}, one_head, tokens,
                                  heads, width, nullptr),
                cudaSuccess);
  expect_status("sum_head_columns",
                sum_head_columns(sums.data(), width + 8, from, tokens, heads, width, nullptr),
                cudaSuccess);
  Bits copied(static_cast<size_t>(tokens * heads * y_head), 0xffff),
      first = copied, added(static_cast<size_t>(tokens * (width + 8)), 0xffff);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (int64_t h = 0; h < heads; ++h) {
        const uint16_t own = host[(t * heads + h) * x_head + 8 + i];
        copied[(t * heads + h) * y_head + 8 + i] = own;
        first[(t * heads + h) * y_head + 8 + i] = host[t * heads * x_head + 8 + i];
        sum = h == 0 ? to_float(own) : sum + to_float(own);
      }
      added[t * (width + 8) + i] = round_to_bf16(sum);
    }
  expect_bits("copies", y.get(), copied, y_head);
  expect_bits("copies of one head", shared.get(), first, y_head);
  expect_bits("sums", sums.get(), added, width + 8);
}

// Every fourth row has no slot.
inline void check_put_rows(int64_t rows, int64_t width) {
  current_case = "put_rows_in_pages [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  const int64_t stride = width + 8;
  const Bits host = random_bf16(rows * stride);
  std::vector<int32_t> host_slots;
  Bits expected(static_cast<size_t>((rows + 2) * width), 0xffff);
  for (int64_t i = 0; i < rows; ++i) {
    host_slots.push_back(i % 4 == 3 ? -1 : static_cast<int32_t>(rows - i));
    if (host_slots.back() >= 0)
      std::copy_n(host.begin() + i * stride, width, expected.begin() + host_slots.back() * width);
  }
  const Bf16Array x(host), pages((rows + 2) * width);
  const Array<int32_t> slots(host_slots);
  expect_status(
      "put_rows_in_pages",
      put_rows_in_pages(pages.data(), x.data(), stride, slots.data(), rows, width, nullptr),
      cudaSuccess);
  expect_bits("pages", pages.get(), expected, width);
}

// Tokens inside the vocabulary's shard [first, first + rows) get its rows, others get zeros.
inline void check_shard(int64_t count, int64_t width, int64_t padding) {
  constexpr int64_t kFirst = 10, kRows = 20, kVocabulary = 50;
  current_case = "embedding_shard [" + std::to_string(count) + ", " + std::to_string(width) +
                 "], rows " + std::to_string(padding) + " apart";
  const int64_t stride = width + padding;
  const Bits host = random_bf16(kRows * stride);
  std::vector<int32_t> ids;
  Bits expected;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(i * 7 % kVocabulary));
    const int64_t row = ids.back() - kFirst;
    for (int64_t j = 0; j < width; ++j)
      expected.push_back(row >= 0 && row < kRows ? host[row * stride + j] : 0);
  }
  const Bf16Array shard(host), y(count * stride);
  const Array<int32_t> tokens(ids);
  expect_status("embedding_shard",
                embedding_shard(y.data(), stride, shard.data(), stride, {kFirst, kRows},
                                tokens.data(), count, width, nullptr),
                cudaSuccess);
  expect_bits("rows", pack_rows(y.get(), count, width, stride), expected, width);
}

// Rotates query heads alone, with the bits of qk_norm_rotary_forward without norms.
inline void check_rotation(HeadCase c) {
  c.q_norm = c.k_norm = false;
  current_case = "rotate_head_columns, " + std::to_string(c.tokens) + " tokens, " +
                 std::to_string(c.query_heads) + " heads of " + std::to_string(c.head_dim) +
                 ", rotated " + std::to_string(c.rotary_dim) +
                 (c.interleaved ? ", interleaved" : "");
  const HeadProblem p(c);
  const HeadDevice device(p, 0);
  const int64_t row = c.query_heads * c.head_dim;
  const Bits expected = pack_rows(run_heads(p), c.tokens, row, p.row);
  const Bf16Array in(p.in), y(c.tokens * row), turned_back(c.tokens * row);
  const auto rotate = [&](const Bf16Array& to, int64_t to_row, bool inverse) {
    expect_status(
        "rotate_head_columns",
        rotate_head_columns({to.data(), to_row, c.head_dim}, {in.data(), p.row, c.head_dim},
                            c.tokens, c.query_heads, c.head_dim, device.rotary, inverse, nullptr),
        cudaSuccess);
  };
  rotate(y, row, false);
  rotate(turned_back, row, true);
  rotate(in, p.row, false);
  expect_bits("rotated", y.get(), expected, c.head_dim);
  expect_bits("in place", pack_rows(in.get(), c.tokens, row, p.row), expected, c.head_dim);
  std::vector<Exact> inverse;
  for (int64_t index = 0; index < c.tokens * c.query_heads; ++index) {
    std::vector<Exact> head;
    const auto own =
        p.in.begin() + index / c.query_heads * p.row + index % c.query_heads * c.head_dim;
    for (int64_t i = 0; i < c.head_dim; ++i)
      head.push_back({to_float(own[i]), std::abs(to_float(own[i]))});
    rotate_exactly(head, p, index / c.query_heads, -1.0);
    inverse.insert(inverse.end(), head.begin(), head.end());
  }
  expect_close("inverse", turned_back.get(), inverse, c.head_dim);
}

// Latent rows are normed as by rms_norm_forward, rotated as by rotate_head_columns, and stored in
// their slots, with or without query rows that are normed too.
inline void check_latent_rows(int64_t tokens, int64_t rank, int64_t rotary, int64_t query_rank) {
  current_case = "latent_rows_forward, " + std::to_string(tokens) + " tokens, " +
                 std::to_string(rank) + " + " + std::to_string(rotary) + ", queries of " +
                 std::to_string(query_rank);
  const HeadProblem p({tokens, 1, 1, rotary, rotary, true, false, false});
  const HeadDevice device(p, 0);
  const int64_t width = rank + rotary;
  const Bits host = random_bf16(tokens * width, 3.0f), norm = random_bf16(rank, 0.3f, 1.0f),
             query = random_bf16(tokens * query_rank, 3.0f),
             query_norm = random_bf16(query_rank, 0.3f, 1.0f);
  const Bf16Array x(host), w(norm), y(tokens * width), pages((tokens + 1) * width), qx(query),
      qw(query_norm), qy(tokens * query_rank), rotated(tokens * rotary);
  const Array<int32_t> slots(p.slots);
  LatentRows rows{.y = y.data(), .x = x.data(), .norm = w.data(), .pages = pages.data()};
  rows.slots = slots.data(), rows.y_stride = rows.x_stride = width;
  rows.tokens = tokens, rows.rank = rank, rows.rotary_width = rotary;
  if (query_rank > 0) {
    rows.query_y = qy.data(), rows.query_x = qx.data(), rows.query_norm = qw.data();
    rows.query_y_stride = rows.query_x_stride = rows.query_rank = query_rank;
  }
  expect_status("latent_rows_forward", latent_rows_forward(rows, device.rotary, kEps, nullptr),
                cudaSuccess);
  expect_status("rotate_head_columns",
                rotate_head_columns({rotated.data(), rotary, 0}, {x.data() + rank, width, 0},
                                    tokens, 1, rotary, device.rotary, false, nullptr),
                cudaSuccess);
  const Bits latent = run_norm(pack_rows(host, tokens, rank, width), norm, tokens, rank),
             turned = rotated.get();
  Bits expected, in_pages(static_cast<size_t>((tokens + 1) * width), 0xffff);
  for (int64_t t = 0; t < tokens; ++t) {
    expected.insert(expected.end(), latent.begin() + t * rank, latent.begin() + (t + 1) * rank);
    expected.insert(expected.end(), turned.begin() + t * rotary, turned.begin() + (t + 1) * rotary);
    if (p.slots[t] >= 0)
      std::copy_n(expected.end() - width, width, in_pages.begin() + p.slots[t] * width);
  }
  expect_bits("rows", y.get(), expected, width);
  expect_bits("pages", pages.get(), in_pages, width);
  if (query_rank > 0)
    expect_bits("queries", qy.get(), run_norm(query, query_norm, tokens, query_rank), query_rank);
}

inline void check_latent(bool small) {
  for (const auto& [tokens, heads, width] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 8}, {5, 20, 64}, {9, 3, 192}}) {
    check_head_columns(tokens, heads, width);
    check_put_rows(tokens * 3, width);
  }
  for (const int64_t padding : {0, 8, 3}) check_shard(37, 24, padding);
  check_shard(5, 7, 0);
  std::vector<HeadCase> cases = {{3, 4, 1, 64, 64, true}, {3, 4, 1, 24, 16, false}};
  if (!small) {
    cases.push_back({530, 20, 1, 64, 64, true});
    cases.push_back({65, 3, 1, 6, 4, false});
    check_head_columns(700, 20, 512);
    check_put_rows(3000, 576);
    check_shard(2051, 264, 0);
    check_latent_rows(700, 512, 64, 1536);
    check_latent_rows(33, 1792, 8, 2048);
  }
  for (const HeadCase& c : cases) check_rotation(c);
  check_latent_rows(5, 512, 64, 0);
  check_latent_rows(9, 24, 8, 72);
}

}  // namespace slimexx::kernels::testing
