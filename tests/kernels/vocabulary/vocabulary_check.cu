// Log-softmax, entropy, gradient and sampling over the vocabulary: values against double on the
// host, bits against the documented tree, rows alone against rows in a batch.
//   vocabulary_check [small | tiny]      for compute-sanitizer: check_size.h
// Exit status 1 on any mismatch.
#include <cuda_bf16.h>

#include <algorithm>
#include <utility>

#include "slimexx/kernels/vocabulary.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/vocabulary/vocabulary_rows.cuh"
#include "tests/kernels/vocabulary/vocabulary_sampling.cuh"

namespace slimexx::kernels::testing {
namespace {

using namespace vocabulary;

struct Expected {
  float lse, entropy;
};

// The tree of tile_sum.cuh, written again from its description, with one thread per row.
__global__ void sum_serially(Expected* out, LogitRows z) {
  const int64_t row = threadIdx.x + int64_t{blockIdx.x} * blockDim.x;
  if (row >= z.rows) return;
  const int64_t tiles = (z.columns + 255) / 256;
  const auto at = [&](int64_t c) {
    return c < z.columns ? z.logits[row * z.stride + c] : -INFINITY;
  };
  float maximum = -INFINITY;
  for (int64_t c = 0; c < z.columns; ++c) maximum = fmaxf(maximum, at(c));
  const float shift = maximum == -INFINITY ? 0 : maximum;
  float s[32] = {}, t[32] = {};
  for (int64_t tile = 0; tile < tiles; ++tile) {
    float m = -INFINITY, sums[4] = {}, weighted[4] = {};
    for (int c = 0; c < 256; ++c) m = fmaxf(m, at(tile * 256 + c));
    const float tile_shift = m == -INFINITY ? 0 : m;
    for (int q = 0; q < 4; ++q) {
      for (int j = 0; j < 32; ++j) {
        for (int odd = 0; odd < 2; ++odd) {
          const float d = at(tile * 256 + 8 * j + 2 * q + odd) - tile_shift, e = exp_approx(d);
          sums[q] = __fadd_rn(sums[q], e);
          weighted[q] = __fmaf_rn(e, fmaxf(d, -1e30f), weighted[q]);
        }
      }
    }
    const float sum = __fadd_rn(__fadd_rn(sums[0], sums[1]), __fadd_rn(sums[2], sums[3]));
    const float weight =
        __fadd_rn(__fadd_rn(weighted[0], weighted[1]), __fadd_rn(weighted[2], weighted[3]));
    const float d = m - shift, e = exp_approx(d);
    s[tile % 32] = __fmaf_rn(sum, e, s[tile % 32]);
    t[tile % 32] = __fmaf_rn(__fmaf_rn(fmaxf(d, -1e30f), sum, weight), e, t[tile % 32]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) {
      s[lane] = __fadd_rn(s[lane], s[lane + distance]);
      t[lane] = __fadd_rn(t[lane], t[lane + distance]);
    }
  }
  out[row] = {__fadd_rn(shift, fixed_log(s[0])),
              __fadd_rn(fixed_log(s[0]), -__fdiv_rn(t[0], s[0]))};
}

struct Results {
  std::vector<float> lse, log_probs, entropies;
};

Results run(const LogitRows& z, const float* temperatures, float temperature,
            const int32_t* targets) {
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(std::max(normalize_logits_workspace(z.rows, z.columns),
                                    gather_log_probs_workspace(z.rows, z.columns))));
  workspace.set_bytes(0xff);
  DeviceArray<float> lse(z.rows), log_probs(z.rows), entropies(z.rows);
  SLX_CUDA(normalize_logits(z, lse.data(), temperatures, temperature, workspace.data(), nullptr));
  SLX_CUDA(gather_log_probs(log_probs.data(), entropies.data(), z, lse.data(), targets,
                            workspace.data(), nullptr));
  return {download(lse), download(log_probs), download(entropies)};
}

std::vector<int32_t> make_targets(int64_t rows, int64_t columns) {
  std::vector<int32_t> targets(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    targets[static_cast<size_t>(r)] = static_cast<int32_t>((r * 7919 + columns - 1) % columns);
  }
  return targets;
}

void check_forward(int64_t rows, int64_t columns, int64_t padding, bool by_row, float scalar) {
  Rows logits(rows, columns, padding, 11);
  std::vector<float> temperatures(static_cast<size_t>(rows), scalar);
  if (by_row) {
    constexpr float kSome[] = {1.0f, 0.7f, 1.3f, 0.05f};
    for (int64_t r = 0; r < rows; ++r) temperatures[static_cast<size_t>(r)] = kSome[r % 4];
  }
  const auto device_temperatures = upload(temperatures);
  const auto targets = make_targets(rows, columns);
  const auto device_targets = upload(targets);
  const Results got = run(logits.view(), by_row ? device_temperatures.data() : nullptr, scalar,
                          device_targets.data());
  const auto z = download(logits.device);
  DeviceArray<Expected> expected_array(rows);
  sum_serially<<<static_cast<unsigned>(rows), 1>>>(expected_array.data(), logits.view());
  const auto expected = download(expected_array);
  for (int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<size_t>(r);
    const float t = temperatures[i];
    const float* row = z.data() + r * logits.stride;
    for (int64_t c = 0; c < logits.stride; ++c) {
      const float raw = logits.row(r)[c], want = c < columns && t != 1 ? raw / t : raw;
      if (!same_bits(row[c], want)) {
        fail("z[%ld,%ld] of %ld columns: %.9g, expected %.9g", long(r), long(c), long(columns),
             row[c], want);
        break;
      }
    }
    if (!same_bits(got.lse[i], expected[i].lse) ||
        !same_bits(got.entropies[i], expected[i].entropy)) {
      fail("tree of row %ld, %ld columns: lse %.9g entropy %.9g, serially %.9g %.9g", long(r),
           long(columns), got.lse[i], got.entropies[i], expected[i].lse, expected[i].entropy);
    }
    const RowFacts facts = measure_row(row, columns);
    if (!(std::fabs(got.lse[i] - facts.lse) <= 1e-6 + 0x1p-23 * std::fabs(facts.lse)) ||
        !(std::fabs(got.entropies[i] - facts.entropy) <= 4e-6 + 1e-6 * facts.entropy)) {
      fail("values of row %ld, %ld columns: lse %.9g entropy %.9g, in double %.9g %.9g", long(r),
           long(columns), got.lse[i], got.entropies[i], facts.lse, facts.entropy);
    }
    const float log_prob = row[targets[i]] - got.lse[i];
    if (!same_bits(got.log_probs[i], log_prob)) {
      fail("log_probs[%ld] %.9g, expected %.9g", long(r), got.log_probs[i], log_prob);
    }
    Rows alone(1, columns, padding + 8, 0);
    std::copy_n(logits.row(r), columns, alone.row(0));
    alone.send();
    const auto target = upload(std::vector<int32_t>{targets[i]});
    const Results single = run(alone.view(), nullptr, t, target.data());
    if (!same_bits(single.lse[0], got.lse[i]) ||
        !same_bits(single.log_probs[0], got.log_probs[i]) ||
        !same_bits(single.entropies[0], got.entropies[i])) {
      fail("row %ld of %ld columns alone: lse %.9g, in the batch %.9g", long(r), long(columns),
           single.lse[0], got.lse[i]);
    }
  }
}

// Rows with NaN, with +inf and with only -inf report this and leave their neighbours unchanged.
// Needs at least six rows.
void check_broken_rows(int64_t rows, int64_t columns) {
  Rows good(rows, columns, 0, 5, Shape::kNormal, false);
  Rows bad(rows, columns, 0, 5, Shape::kNormal, false);
  bad.row(1)[columns / 3] = NAN;
  bad.row(3)[columns - 1] = INFINITY;
  std::fill_n(bad.row(4), columns, -INFINITY);
  bad.send();
  const auto targets = upload(make_targets(rows, columns));
  const Results a = run(good.view(), nullptr, 1.0f, targets.data());
  const Results b = run(bad.view(), nullptr, 1.0f, targets.data());
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    if (r == 1 || r == 3 || r == 4) continue;
    if (!same_bits(a.lse[r], b.lse[r]) || !same_bits(a.entropies[r], b.entropies[r])) {
      fail("row %zu beside broken rows: lse %.9g, expected %.9g", r, b.lse[r], a.lse[r]);
    }
  }
  if (!std::isnan(b.lse[1]) || !std::isnan(b.lse[3]) || b.lse[4] != -INFINITY) {
    fail("broken rows: lse %g %g %g, expected nan nan -inf", b.lse[1], b.lse[3], b.lse[4]);
  }
}

void check_backward(int64_t rows, int64_t columns, int64_t out_padding, bool with_entropy,
                    float temperature) {
  Rows logits(rows, columns, 4, 23);
  const auto targets = make_targets(rows, columns);
  const auto device_targets = upload(targets);
  const Results f = run(logits.view(), nullptr, temperature, device_targets.data());
  const auto z = download(logits.device);
  std::vector<float> dlp(static_cast<size_t>(rows)), dh(static_cast<size_t>(rows));
  for (size_t r = 0; r < dlp.size(); ++r) {
    dlp[r] = 0.7f - 0.3f * static_cast<float>(r % 5);
    dh[r] = 0.02f * static_cast<float>(r % 3) - 0.03f;
  }
  const auto lse = upload(f.lse), entropies = upload(f.entropies), device_dlp = upload(dlp),
             device_dh = upload(dh);
  const int64_t stride = columns + out_padding;
  DeviceArray<__nv_bfloat16> out(rows * stride);
  out.set_bytes(0x5a);
  SLX_CUDA(log_probs_backward(out.data(), stride, logits.view(), lse.data(), device_targets.data(),
                              with_entropy ? entropies.data() : nullptr, device_dlp.data(),
                              with_entropy ? device_dh.data() : nullptr, temperature, nullptr));
  const auto got = download(reinterpret_cast<uint16_t*>(out.data()), rows * stride);
  for (int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<size_t>(r);
    for (int64_t c = 0; c < stride; ++c) {
      const uint16_t bits = got[static_cast<size_t>(r * stride + c)];
      const uint32_t wide = uint32_t{bits} << 16;
      float value;
      std::memcpy(&value, &wide, sizeof(value));
      if (c >= columns) {
        if (bits != 0x5a5a) fail("dlogits[%ld,%ld] beyond the row was written", long(r), long(c));
        continue;
      }
      const double log_p = double{z[static_cast<size_t>(r * logits.stride + c)]} - double{f.lse[i]};
      const double p = std::exp(log_p), one = c == targets[i] ? 1 : 0;
      double want = dlp[i] * (one - p);
      if (with_entropy && p > 0) want -= dh[i] * p * (log_p + double{f.entropies[i]});
      want /= temperature;
      // Tolerance: half a bf16 step, plus cancellation of 1 - p and of log p + H in f32.
      const double room = std::fabs(want) * 0x1.02p-8 + 3e-6 / temperature * p + 1e-37;
      if (!(std::fabs(value - want) <= room)) {
        fail("dlogits[%ld,%ld] of %ld columns: %.9g, expected %.9g", long(r), long(c),
             long(columns), value, want);
        break;
      }
    }
  }
}

// The merge of tiles' partial results with target logits from a product gives the same bits.
void check_merge(int64_t rows, int64_t columns) {
  Rows logits(rows, columns, 0, 31);
  const auto targets = make_targets(rows, columns);
  const auto device_targets = upload(targets);
  const Results want = run(logits.view(), nullptr, 1.0f, device_targets.data());
  std::vector<float> target_logits;
  for (int64_t r = 0; r < rows; ++r) {
    target_logits.push_back(logits.row(r)[targets[static_cast<size_t>(r)]]);
  }
  const auto device_logits = upload(target_logits);
  DeviceArray<uint8_t> workspace(static_cast<int64_t>(partials_bytes(rows, columns, true)));
  const TilePartials partials = place_partials(workspace.data(), rows, columns, true);
  SLX_CUDA(launch_tile_pass(partials, logits.view(), {}, false, nullptr));
  DeviceArray<float> lse(rows), log_probs(rows), entropies(rows);
  const MergedRows out = {lse.data(), entropies.data(), log_probs.data(), device_logits.data()};
  SLX_CUDA(launch_merge(out, partials, rows, nullptr));
  const Results got = {download(lse), download(log_probs), download(entropies)};
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    if (!same_bits(got.lse[r], want.lse[r]) || !same_bits(got.log_probs[r], want.log_probs[r]) ||
        !same_bits(got.entropies[r], want.entropies[r])) {
      fail("merge of row %zu: log_prob %.9g, expected %.9g", r, got.log_probs[r],
           want.log_probs[r]);
    }
  }
}

// Compares the streamed pass with the plain pass of each row alone: every tile's partial result and
// every quotient.
void check_streamed_pass(int64_t rows, int64_t columns, int64_t padding, float temperature,
                         bool weighted, bool write) {
  Rows streamed(rows, columns, padding, 47), plain(rows, columns, padding, 47);
  const int64_t tiles = count_tiles(columns), floats = rows * tiles * (weighted ? 3 : 2);
  DeviceArray<float> workspace(floats), row_workspace(tiles * (weighted ? 3 : 2));
  workspace.set_bytes(0xff);
  const TilePartials partials = place_partials(workspace.data(), rows, columns, weighted);
  const TilePartials of_row = place_partials(row_workspace.data(), 1, columns, weighted);
  const RowTemperatures temperatures = {nullptr, 1, temperature};
  SLX_CUDA(launch_streamed_tile_pass(partials, streamed.view(), temperatures, write, nullptr));
  const auto got = download(workspace);
  for (int64_t r = 0; r < rows; ++r) {
    SLX_CUDA(launch_tile_pass(of_row, plain.view(r), temperatures, write, nullptr));
    const auto want = download(row_workspace);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t tile = i % static_cast<size_t>(tiles), part = i / static_cast<size_t>(tiles);
      const float value = got[(part * static_cast<size_t>(rows) + static_cast<size_t>(r)) *
                                  static_cast<size_t>(tiles) +
                              tile];
      if (same_bits(value, want[i])) continue;
      fail("streamed pass of %ld x %ld, row %ld tile %zu, part %zu: %.9g, alone %.9g", long(rows),
           long(columns), long(r), tile, part, value, want[i]);
      return;
    }
  }
  const auto a = download(streamed.device), b = download(plain.device);
  for (size_t i = 0; i < a.size(); ++i) {
    if (same_bits(a[i], b[i])) continue;
    fail("streamed pass of %ld x %ld writes %.9g at %zu, the plain one %.9g", long(rows),
         long(columns), a[i], i, b[i]);
    return;
  }
}

// Checks all functions on sizes that use the streamed pass, 16,896 tiles and more, and the pass's
// own variants.
void check_streamed() {
  constexpr int64_t kShapes[][3] = {
      {29, 151936, 0}, {64, 151935, 6}, {70, 62001, 9}, {136, 32000, 12}};
  for (const auto& [rows, columns, padding] : kShapes) {
    check_forward(rows, columns, padding, false, 1.0f);
    check_forward(rows, columns, padding, true, 1.0f);
    check_forward(rows, columns, padding, false, 0.6f);
    for (const bool weighted : {false, true}) {
      check_streamed_pass(rows, columns, padding, 0.7f, weighted, true);
      check_streamed_pass(rows, columns, padding, 0.7f, weighted, false);
      check_streamed_pass(rows, columns, padding, 1.0f, weighted, false);
    }
  }
  check_broken_rows(64, 151936);
}

// Runs every kernel once or twice. In the streamed pass each warp's ring wraps around.
void check_tiny() {
  check_forward(3, 300, 0, true, 1.0f);
  check_forward(2, 257, 5, false, 1.0f);
  check_backward(2, 264, 0, true, 0.6f);
  check_backward(2, 257, 3, false, 1.3f);
  check_merge(2, 300);
  for (const bool weighted : {false, true}) {
    check_streamed_pass(57, 151933, 3, 0.7f, weighted, weighted);
  }
  std::printf("log-softmax, entropy, gradient: %d mismatches\n", failures);
  check_samples(300, 0, Shape::kNormal, 1, 17, false);
  check_samples(300, 270, Shape::kTies, 2, 34, false);
  std::printf("sampling of few tokens: %d mismatches\n", failures);
  check_samples(9000, 0, Shape::kFlat, 3, 17, false);
  std::printf("sampling: %d mismatches\n", failures);
}

void check_all(bool small) {
  std::vector<int64_t> widths = {1, 3, 8, 255, 256, 257, 1000, 4099, 8200};
  if (!small) widths.insert(widths.end(), {32000, 151936});
  for (const int64_t columns : widths) {
    const int64_t rows = columns > 10000 ? 16 : 40;
    check_forward(rows, columns, 0, false, 1.0f);
    check_forward(rows, columns, 5, true, 1.0f);
    check_forward(rows, columns, 12, false, 0.6f);
    check_backward(rows, columns, 0, true, 0.6f);
    check_backward(rows, columns, (8 - columns % 8) % 8, true, 1.0f);
    check_backward(rows, columns, 3, false, 1.3f);
    check_merge(rows, columns);
    if (columns > 8) check_broken_rows(6, columns);
    if (small && columns == 4099) break;
  }
  check_streamed_pass(57, 151933, 3, 0.7f, true, true);
  check_streamed_pass(57, 151933, 3, 1.0f, false, false);
  if (!small) check_streamed();
  std::printf("log-softmax, entropy, gradient: %d mismatches\n", failures);
  const int before = std::exchange(failures, 0);
  check_sampling(small);
  std::printf("sampling: %d mismatches\n", failures);
  failures += before;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  const CheckSize size = read_check_size(argc, argv);
  size == CheckSize::kTiny ? check_tiny() : check_all(size == CheckSize::kSmall);
  std::printf("vocabulary_check: %d mismatches\n", failures);
  return failures == 0 ? 0 : 1;
}
