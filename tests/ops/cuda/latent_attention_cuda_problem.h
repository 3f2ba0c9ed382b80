// Problems for latent attention on the device: packed, and paged in chunks; with or without
// selected keys.
#pragma once
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/attention_cuda_problem.h"
#include "slimexx/base/philox.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {

inline constexpr uint64_t kLatentSeed = 23;

struct LatentCase {
  std::vector<int32_t> lengths;
  int64_t heads, values, rotary;
};

inline std::string name_of(const LatentCase& c) {
  std::string name = std::to_string(c.heads) + " heads, " + std::to_string(c.values) + " + " +
                     std::to_string(c.rotary) + ", lengths";
  for (const int32_t length : c.lengths) name += " " + std::to_string(length);
  return name + ", seed " + std::to_string(kLatentSeed);
}

struct LatentProblem {
  LatentCase shape;
  std::vector<int32_t> cu{0};
  Array q, keys, selected;  // selected keys per query; undefined: all keys up to the query's own
  float scale;

  explicit LatentProblem(const LatentCase& c) : shape(c) {
    for (const int32_t length : c.lengths) cu.push_back(cu.back() + length);
    q = random_bf16({cu.back(), c.heads, width()}, kLatentSeed);
    keys = random_bf16({cu.back(), 1, width()}, kLatentSeed + 1);
    scale = 2.0f / std::sqrt(static_cast<float>(width()));
  }
  int64_t width() const { return shape.values + shape.rotary; }
  int32_t longest() const { return *std::max_element(shape.lengths.begin(), shape.lengths.end()); }
  Array output() const { return Array({cu.back(), shape.heads, shape.values}); }
  Array statistics() const { return Array({cu.back(), shape.heads}); }
};

inline Array forward_packed(const LatentProblem& p) {
  const OnDevice q(p.q), keys(p.keys), out(p.output());
  const PackedLayout packed(p.cu);
  const OnDevice selected(p.selected);
  AttentionLayout layout = packed.layout();
  layout.selected = selected;
  run_op([&](const Context& s) { attention_forward(s, out, {}, q, keys, keys, layout, p.scale); });
  return out.back();
}

// Key rows in shuffled pages; slots that no sequence uses hold NaN.
struct LatentPages {
  int64_t page_tokens, per_sequence;
  Array keys;
  std::vector<int32_t> table;

  LatentPages(const LatentProblem& p, int64_t tokens_per_page) : page_tokens(tokens_per_page) {
    const auto num_sequences = static_cast<int64_t>(p.shape.lengths.size());
    per_sequence = (p.longest() + page_tokens - 1) / page_tokens;
    keys = Array({num_sequences * per_sequence, page_tokens, 1, p.width()});
    keys.fill(std::nanf(""));
    table.resize(static_cast<size_t>(num_sequences * per_sequence));
    std::iota(table.begin(), table.end(), 0);
    PhiloxStream stream(3, 1);
    for (size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[stream.next_below(i)]);
  }
  int32_t slot(size_t sequence, int32_t position) const {
    const int64_t entry = static_cast<int64_t>(sequence) * per_sequence + position / page_tokens;
    return static_cast<int32_t>(table[static_cast<size_t>(entry)] * page_tokens +
                                position % page_tokens);
  }
};

// Runs every sequence through pages, `step` tokens at a time: stores the rows in their slots, then
// attends.
inline Array run_in_chunks(const LatentProblem& p, int64_t page_tokens, int32_t step,
                           int64_t max_split_tokens) {
  const LatentPages pages(p, page_tokens);
  const OnDevice page_rows(pages.keys), all_q(p.q), all_keys(p.keys);
  Array table({static_cast<int64_t>(p.shape.lengths.size()), pages.per_sequence}, DType::kI32);
  std::copy(pages.table.begin(), pages.table.end(), table.view().i32());
  const OnDevice device_table(table);
  Array out = p.output();
  for (int32_t first = 0; first < p.longest(); first += step) {
    std::vector<int32_t> cu{0}, context, slots;
    std::vector<int64_t> rows;
    for (size_t b = 0; b < p.shape.lengths.size(); ++b) {
      const int32_t begin = std::min(first, p.shape.lengths[b]),
                    end = std::min(first + step, p.shape.lengths[b]);
      cu.push_back(cu.back() + end - begin);
      context.push_back(begin);
      for (int32_t position = begin; position < end; ++position) {
        slots.push_back(pages.slot(b, position));
        rows.push_back(p.cu[b] + position);
      }
    }
    const auto take = [&](const Array& from, int64_t row) {
      Array some({static_cast<int64_t>(rows.size()), from.size() / p.cu.back() / row, row});
      const int64_t width = from.size() / p.cu.back();
      for (size_t i = 0; i < rows.size(); ++i)
        std::copy_n(from.view().f32() + rows[i] * width, width,
                    some.view().f32() + static_cast<int64_t>(i) * width);
      return some;
    };
    const Array q = take(p.q, p.width());
    Array lists;
    if (p.selected.view().defined()) {
      const int64_t width = p.selected.view().dim(1);
      lists = Array({static_cast<int64_t>(rows.size()), width}, DType::kI32);
      for (size_t i = 0; i < rows.size(); ++i)
        std::copy_n(p.selected.view().i32() + rows[i] * width, width,
                    lists.view().i32() + static_cast<int64_t>(i) * width);
    }
    const OnDevice own_q(q), own_keys(take(p.keys, p.width())),
        own_slots = integers_on_device(slots),
        part(Array({q.view().dim(0), p.shape.heads, p.shape.values})),
        device_cu = integers_on_device(cu), device_context = integers_on_device(context),
        selected(lists);
    const AttentionLayout layout{.cu_seqlens = cu,
                                 .context_lens = context,
                                 .page_table = device_table,
                                 .page_tokens = page_tokens,
                                 .context_is_written = true,
                                 .device_cu_seqlens = device_cu,
                                 .device_context_lens = device_context,
                                 .max_split_tokens = max_split_tokens,
                                 .selected = selected};
    run_op([&](const Context& s) {
      write_kv_pages(s, page_rows, {}, own_keys, {}, own_slots);
      attention_forward(s, part, {}, own_q, page_rows, page_rows, layout, p.scale);
    });
    const Array got = part.back();
    const int64_t width = p.shape.heads * p.shape.values;
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(got.view().f32() + static_cast<int64_t>(i) * width, width,
                  out.view().f32() + rows[i] * width);
  }
  return out;
}

}  // namespace slimexx::ops::testing
