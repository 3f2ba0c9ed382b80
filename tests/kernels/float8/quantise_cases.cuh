// Cases of the FP8 quantisers: bytes and scales against the functions that the CPU uses.
#pragma once
#include <cstring>
#include <vector>

#include "tests/kernels/float8/quantise_data.cuh"

namespace slimexx::kernels::testing {

// Rows are `gap` elements wider, and scales have a wider stride.
inline void check_rows(CheckCounts& counts, const QuantiseData& data, int64_t gap) {
  const int64_t m = data.rows, k = data.columns;
  const int64_t scale_stride = fp8_scale_stride(m) + (gap == 0 ? 0 : 8);
  std::vector<uint16_t> wide(static_cast<size_t>(m * (k + gap)), 0x7FC0);
  for (int64_t row = 0; row < m; ++row)
    std::memcpy(&wide[static_cast<size_t>(row * (k + gap))], &data.x[static_cast<size_t>(row * k)],
                size_t(k) * 2);
  const DeviceArray<uint16_t> x = to_device(wide);
  DeviceArray<uint8_t> q(m * k + 256);
  DeviceArray<float> scales(k / 128 * scale_stride);
  q.set_bytes(0xEE);
  scales.set_bytes(0xEE);
  const char* fault = launch_quantise_rows({.x = x.data(),
                                            .q = q.data(),
                                            .scales = scales.data(),
                                            .x_stride = gap == 0 ? 0 : k + gap,
                                            .scale_stride = gap == 0 ? 0 : scale_stride,
                                            .m = m,
                                            .k = k},
                                           nullptr);
  SLX_CUDA(cudaDeviceSynchronize());
  if (counts.fails(fault == nullptr)) std::printf("FAIL quantise_rows: %s\n", fault);
  const std::vector<uint8_t> bytes = to_host(q);
  const std::vector<float> found = to_host(scales);
  int64_t wrong = 0, wrong_scales = 0;
  char first[160] = "";
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t group = 0; group < k / 128; ++group) {
      const tensor::F8RowScale scale =
          tensor::f8_row_scale(std::bit_cast<float>(largest_pattern(data, row, group * 128, 1)));
      const float own = found[static_cast<size_t>(group * scale_stride + row)];
      if (std::memcmp(&own, &scale.scale, 4) != 0 && wrong_scales++ == 0)
        std::snprintf(first, sizeof(first), "scale of row %ld group %ld: %a, expected %a",
                      long(row), long(group), own, scale.scale);
      for (int64_t i = group * 128; i < group * 128 + 128; ++i) {
        const auto at = static_cast<size_t>(row * k + i);
        const uint8_t expected = tensor::f32_to_f8_e4m3(widen_bf16(data.x[at]) * scale.factor);
        if (bytes[at] != expected && wrong++ == 0)
          std::snprintf(first, sizeof(first),
                        "row %ld column %ld, bf16 %04x factor %a: %02x, expected %02x", long(row),
                        long(i), data.x[at], scale.factor, bytes[at], expected);
      }
    }
  }
  for (int64_t i = m * k; i < q.count(); ++i) wrong += bytes[static_cast<size_t>(i)] != 0xEE;
  if (counts.fails(wrong + wrong_scales == 0))
    std::printf("FAIL quantise_rows m %ld k %ld gap %ld %s: %ld bytes and %ld scales differ: %s\n",
                long(m), long(k), long(gap), data.name, long(wrong), long(wrong_scales), first);
}

// Two units per block: neighbours, or other pairs if `shuffled`; -1 fills a block of one unit.
inline std::vector<int32_t> list_units(int64_t rows, bool shuffled) {
  const auto units = static_cast<int32_t>(rows / 64);
  std::vector<int32_t> list;
  for (int32_t i = 0; i < units; ++i) list.push_back(shuffled ? units - 1 - i : i);
  if (shuffled && units > 2) list.insert(list.begin() + 1, -1);
  if (list.size() % 2 == 1) list.push_back(-1);
  return list;
}

struct QuantisedOnHost {
  std::vector<uint8_t> q;
  std::vector<uint16_t> rounded;
  std::vector<float> scales;
};

inline QuantisedOnHost quantise_on_host(const QuantiseData& data, const std::vector<int32_t>& units,
                                        tensor::F8ScaleRule rule) {
  const int64_t groups = data.columns / 128;
  QuantisedOnHost out{std::vector<uint8_t>(data.x.size()), std::vector<uint16_t>(data.x.size()),
                      std::vector<float>(static_cast<size_t>(data.rows / 64 * groups))};
  for (size_t block = 0; block < units.size(); block += 2) {
    for (int64_t group = 0; group < groups; ++group) {
      uint32_t most = 0;
      for (const int32_t unit : {units[block], units[block + 1]})
        if (unit >= 0) most = std::max(most, largest_pattern(data, unit * 64, group * 128, 64));
      const float scale = tensor::f8_scale(std::bit_cast<float>(most), rule);
      for (const int32_t unit : {units[block], units[block + 1]}) {
        if (unit < 0) continue;
        out.scales[static_cast<size_t>(unit * groups + group)] = scale;
        for (int64_t i = 0; i < 64 * 128; ++i) {
          const auto at =
              static_cast<size_t>((unit * 64 + i / 128) * data.columns + group * 128 + i % 128);
          out.q[at] = tensor::f32_to_f8_e4m3(widen_bf16(data.x[at]) / scale);
          out.rounded[at] = round_to_bf16(f8_value(out.q[at]) * scale);
        }
      }
    }
  }
  return out;
}

inline void check_blocks(CheckCounts& counts, const QuantiseData& data, tensor::F8ScaleRule rule,
                         bool shuffled, bool in_place) {
  const std::vector<int32_t> list = list_units(data.rows, shuffled);
  const DeviceArray<int32_t> units = to_device(list);
  const DeviceArray<uint16_t> w = to_device(data.x);
  DeviceArray<uint8_t> q(w.count());
  DeviceArray<float> scales(data.rows / 64 * (data.columns / 128));
  DeviceArray<int64_t> changed(1);
  q.set_bytes(0x12);
  scales.set_bytes(0xEE);
  changed.set_bytes(0);
  const char* fault = launch_quantise_blocks({.w = w.data(),
                                              .rounded = in_place ? w.data() : nullptr,
                                              .q = q.data(),
                                              .scales = scales.data(),
                                              .units = shuffled ? units.data() : nullptr,
                                              .num_blocks = static_cast<int64_t>(list.size() / 2),
                                              .changed = changed.data(),
                                              .rows = data.rows,
                                              .k = data.columns,
                                              .rule = rule},
                                             nullptr);
  SLX_CUDA(cudaDeviceSynchronize());
  if (counts.fails(fault == nullptr)) std::printf("FAIL quantise_blocks: %s\n", fault);
  const QuantisedOnHost expected = quantise_on_host(data, list, rule);
  const std::vector<uint8_t> bytes = to_host(q);
  const std::vector<uint16_t> rounded = to_host(w);
  const std::vector<float> found = to_host(scales);
  int64_t wrong = 0, wrong_rounded = 0, wrong_scales = 0, most_changed = 0;
  size_t first = bytes.size();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint16_t plain = in_place ? expected.rounded[i] : data.x[i];
    const bool both_nan = (plain & 0x7FFF) > 0x7F80 && (rounded[i] & 0x7FFF) > 0x7F80;
    most_changed += expected.q[i] != 0x12;
    wrong += bytes[i] != expected.q[i];
    wrong_rounded += rounded[i] != plain && !both_nan;
    if (wrong + wrong_rounded > 0 && first == bytes.size()) first = i;
  }
  for (size_t i = 0; i < found.size(); ++i)
    wrong_scales += std::memcmp(&found[i], &expected.scales[i], 4) != 0;
  const bool right_count = changed.get(0) == most_changed;
  if (!counts.fails(wrong + wrong_rounded + wrong_scales == 0 && right_count)) return;
  std::printf(
      "FAIL quantise_blocks rows %ld k %ld rule %d shuffled %d in place %d %s: %ld bytes, %ld "
      "rounded and %ld scales differ, changed %ld, expected %ld",
      long(data.rows), long(data.columns), int(rule), shuffled, in_place, data.name, long(wrong),
      long(wrong_rounded), long(wrong_scales), long(changed.get(0)), long(most_changed));
  if (first < bytes.size())
    std::printf("; element %zu, bf16 %04x: %02x %04x, expected %02x %04x", first, data.x[first],
                bytes[first], rounded[first], expected.q[first], expected.rounded[first]);
  std::printf("\n");
}

inline void check_quantisers(CheckCounts& counts, bool few) {
  constexpr tensor::F8ScaleRule kRules[] = {tensor::F8ScaleRule::kPowerOfTwo,
                                            tensor::F8ScaleRule::kFloat};
  std::vector<QuantiseData> list{draw_data(Values::kNormal, 1, 128),
                                 draw_data(Values::kNormal, 67, 640), draw_edges(9 * 64, 256)};
  if (!few) {
    list.push_back(draw_all_patterns());
    for (const Values values : {Values::kExponents, Values::kZeros, Values::kCancelling,
                                Values::kMassive, Values::kInfinite})
      list.push_back(draw_data(values, 320, 1152));
    list.push_back(draw_data(Values::kNormal, 1024, 4096, 0.02f));
    list.push_back(draw_data(Values::kExponents, 64, 384, 0x1p-100f));
    list.push_back(draw_data(Values::kExponents, 192, 128, 0x1p100f));
  }
  for (const QuantiseData& data : list) {
    check_rows(counts, data, 0);
    check_rows(counts, data, 8);
    if (data.rows % 64 != 0) continue;
    for (const tensor::F8ScaleRule rule : kRules)
      for (int form = 0; form < 4; ++form)
        check_blocks(counts, data, rule, form % 2 == 1, form / 2 == 1);
  }
}

}  // namespace slimexx::kernels::testing
