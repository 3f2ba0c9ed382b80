// Checks of sample_tokens: kept sets and tokens against the host, frequencies, broken rows, rows
// alone against rows in a batch, log-probs against normalize_logits.
#pragma once
#include <algorithm>
#include <numeric>

#include "kernels/vocabulary/sampling.cuh"
#include "slimexx/base/philox.h"
#include "tests/kernels/vocabulary/vocabulary_rows.cuh"

namespace slimexx::kernels::testing {

using vocabulary::KeptSet;

// The device's weights of a row's tokens, and their order.
static __global__ void dump_row(float* z, float* weights, LogitRows rows, float temperature,
                                float maximum) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= rows.columns) return;
  z[c] = vocabulary::divide_logit(rows.logits[c], temperature);
  weights[c] = vocabulary::weight_of(z[c], maximum);
}

struct Samples {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
  std::vector<KeptSet> kept;
};

inline Samples sample(const LogitRows& logits, const std::vector<SamplingParameters>& parameters,
                      int64_t allowed) {
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(sample_tokens_workspace(logits.rows, logits.columns)));
  workspace.set_bytes(0xff);
  DeviceArray<int32_t> tokens(logits.rows);
  DeviceArray<float> log_probs(logits.rows);
  const auto device_parameters = upload(parameters);
  SLX_CUDA(sample_tokens(tokens.data(), log_probs.data(), logits, device_parameters.data(), allowed,
                         workspace.data(), nullptr));
  const KeptSet* kept = vocabulary::place_kept_sets(workspace.data(), logits.rows, logits.columns);
  return {download(tokens), download(log_probs), download(kept, logits.rows)};
}

inline uint64_t host_uniform_bits(const SamplingParameters& p) {
  const PhiloxCounter words =
      philox4x32({p.counter[0], p.counter[1], p.counter[2], p.counter[3]},
                 {static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)});
  return uint64_t{words[0] >> 5} << 26 | words[1] >> 6;
}

inline uint32_t host_key(float z) {
  const float canonical = z + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &canonical, sizeof(bits));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// One row on the host, restricted to the allowed tokens.
class RowReference {
 public:
  RowReference(const Rows& rows, int64_t r, const SamplingParameters& p, int64_t allowed,
               const KeptSet& device)
      : p_(p), n_(allowed > 0 && allowed < rows.columns ? allowed : rows.columns), device_(device) {
    DeviceArray<float> z(rows.columns), weights(rows.columns);
    dump_row<<<static_cast<unsigned>((rows.columns + 255) / 256), 256>>>(
        z.data(), weights.data(), rows.view(r), p.temperature, device.maximum);
    z_ = download(z);
    weights_ = download(weights);
    order_.resize(static_cast<size_t>(n_));
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      return this->z(a) != this->z(b) ? this->z(a) > this->z(b) : a < b;
    });
  }

  int32_t best() const { return order_[0]; }
  float z(int64_t id) const { return z_[static_cast<size_t>(id)]; }
  bool is_truncated() const {
    return (p_.top_k > 0 && p_.top_k < n_) || p_.top_p < 1 || p_.min_p > 0;
  }

  // Weights and the total mass match their definition.
  void check_masses(const char* where) const {
    double total = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const double exact = std::exp(double{z(i)} - double{device_.maximum});
      const double weight = double{weights_[static_cast<size_t>(i)]};
      // The exponent is rounded to f32 before the exponential.
      const double exponent = std::fmin(200, double{device_.maximum} - double{z(i)});
      if (!(std::fabs(weight - exact) <= (4e-7 + 0x1p-23 * exponent) * exact + 1e-37)) {
        fail("%s: weight of %ld is %g, in double %g", where, long(i), weight, exact);
        return;
      }
      total += exact;
    }
    if (z(best()) != device_.maximum || !(std::fabs(scaled(device_.total) / total - 1) < 1e-6)) {
      fail("%s: maximum %g total %.9g, expected %g %.9g", where, device_.maximum,
           scaled(device_.total), z(best()), total);
    }
  }

  // Selects the kept ids on the host, from the device's weights; they must equal the ids that the
  // device kept.
  void check_kept(const char* where) {
    const size_t size = count_kept([&](int32_t id) { return static_cast<double>(mass(id)); },
                                   static_cast<double>(device_.total), true);
    std::vector<char> kept(static_cast<size_t>(n_));
    uint64_t kept_mass = 0;
    for (size_t i = 0; i < size; ++i) {
      const int32_t id = order_[i];
      if (weights_[static_cast<size_t>(id)] < std::min(p_.min_p, 1.0f)) continue;
      kept[static_cast<size_t>(id)] = 1;
      kept_mass += mass(id);
    }
    for (int64_t id = 0; id < n_; ++id) {
      if (kept_by_device(id) == (kept[static_cast<size_t>(id)] != 0)) continue;
      fail("%s: token %ld is %s by the device; %zu pass top_k and top_p on the host", where,
           long(id), kept_by_device(id) ? "kept" : "dropped", size);
      return;
    }
    if (is_truncated() && kept_mass != device_.mass) {
      fail("%s: kept mass %.17g, expected %.17g", where, scaled(device_.mass), scaled(kept_mass));
    }
    check_against_double(where);
  }

  // The token for the row's uniform number: exactly the host's token if the row is truncated,
  // otherwise within 1e-6 of the mass.
  void check_token(const char* where, int32_t token) const {
    if (token < 0 || token >= n_ || !kept_by_device(token)) {
      fail("%s: token %d of %ld allowed is not kept", where, token, long(n_));
      return;
    }
    const uint64_t bits = host_uniform_bits(p_);
    if (is_truncated()) {
      const auto goal =
          static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * device_.mass >> 53);
      uint64_t sum = 0;
      int32_t id = 0;
      for (;; ++id) {
        if (kept_by_device(id)) sum += mass(id);
        if (sum > goal) break;
      }
      if (id != token) fail("%s: token %d, the host's walk gives %d", where, token, id);
    }
    double before = 0, total = 0;
    for (int32_t id = 0; id < n_; ++id) {
      if (!kept_by_device(id)) continue;
      const double weight = std::exp(double{z(id)} - double{device_.maximum});
      if (id < token) before += weight;
      total += weight;
    }
    const double u = static_cast<double>(bits) * 0x1p-53;
    const double after = before + std::exp(double{z(token)} - double{device_.maximum});
    if (u < before / total - 1e-6 || u > after / total + 1e-6) {
      fail("%s: u %.9g chose token %d of [%.9g, %.9g]", where, u, token, before / total,
           after / total);
    }
  }

 private:
  static double scaled(uint64_t mass) { return static_cast<double>(mass) * 0x1p-44; }
  uint64_t mass(int64_t id) const {
    return static_cast<uint64_t>(double{weights_[static_cast<size_t>(id)]} * 0x1p44);
  }
  bool kept_by_device(int64_t id) const {
    const uint32_t key = host_key(z(id));
    return (key > device_.key ||
            (key == device_.key && static_cast<uint32_t>(id) <= device_.last_id)) &&
           weights_[static_cast<size_t>(id)] >= device_.min_weight;
  }

  // The number of best tokens that top_k and top_p keep; mass_of(id) gives the masses. `exact`:
  // masses are integers, and sums are compared with the goal rounded up.
  template <class MassOf>
  size_t count_kept(MassOf mass_of, double total, bool exact, double* goal_out = nullptr) const {
    size_t size = static_cast<size_t>(n_);
    if (p_.top_k > 0 && p_.top_k < n_) {
      size = static_cast<size_t>(p_.top_k);
      uint64_t integer = 0;
      total = 0;
      for (size_t i = 0; i < size; ++i) {
        total += mass_of(order_[i]);
        integer += mass(order_[i]);
      }
      if (exact) total = static_cast<double>(integer);
    }
    if (p_.top_p >= 1) return size;
    const double goal = double{p_.top_p} * total;
    if (goal_out != nullptr) *goal_out = goal;
    const uint64_t integer_goal = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(goal)));
    double sum = 0;
    uint64_t integer = 0;
    for (size_t i = 0; i < size; ++i) {
      sum += mass_of(order_[i]);
      integer += mass(order_[i]);
      if (exact ? integer >= integer_goal : sum >= goal) return i + 1;
    }
    return size;
  }

  // An independent reference: if it keeps other tokens than the device, these must weigh less than
  // the shift of the boundary by rounding.
  void check_against_double(const char* where) const {
    double total = 0;
    std::vector<double> weights(static_cast<size_t>(n_));
    for (int32_t id = 0; id < n_; ++id) {
      weights[static_cast<size_t>(id)] = std::exp(double{z(id)} - double{z(best())});
      total += weights[static_cast<size_t>(id)];
    }
    const auto weight_of = [&](int32_t id) { return weights[static_cast<size_t>(id)]; };
    double goal = 0, sum = 0, apart = 0;
    const size_t size = count_kept(weight_of, total, false, &goal);
    for (size_t i = 0; i < order_.size(); ++i) {
      const double weight = weight_of(order_[i]);
      const bool kept = i < size && weight >= double{std::min(p_.min_p, 1.0f)};
      const bool at_edge = std::fabs(weight - double{p_.min_p}) < 1e-6 * weight;
      sum += weight;
      if (kept == kept_by_device(order_[i]) || at_edge) continue;
      apart += weight;
      // One token may straddle the goal: then the sums before and after it lie on different sides.
      if (p_.top_p < 1 && std::fabs(sum - weight - goal) < 2e-6 * total) apart -= weight;
    }
    if (apart > 2e-6 * total) {
      fail("%s: kept tokens differ from those in double by %.3g of the mass", where, apart / total);
    }
  }

  SamplingParameters p_;
  int64_t n_;
  KeptSet device_;
  std::vector<float> z_, weights_;
  std::vector<int32_t> order_;
};

inline std::vector<SamplingParameters> make_parameters(int64_t rows, int64_t columns) {
  struct Setting {
    float temperature, top_p;
    int32_t top_k;
    float min_p;
    int32_t greedy;
  };
  const auto half = static_cast<int32_t>(std::max<int64_t>(1, columns / 2));
  const Setting settings[] = {
      {1, 1, 0, 0, 0},          {0.7f, 1, 0, 0, 0},        {1, 0.9f, 0, 0, 0},
      {1, 1, 5, 0, 0},          {1.2f, 0.95f, 50, 0, 0},   {1, 1, 0, 0.1f, 0},
      {0.6f, 0.8f, 7, 0.2f, 0}, {1, 1, 0, 0, 1},           {1, 0.0f, 0, 0, 0},
      {1, 0.99999f, 0, 0, 0},   {1, 0.999999f, 0, 0, 0},   {1.5f, 0.5f, 1000, 0, 0},
      {1, 1, 1, 0, 0},          {1, 1, half, 0, 0},        {1, 0.3f, half, 1e-3f, 0},
      {1, 1, 0, 1.0f, 0},       {0.9f, 0.95f, 0, 1e-6f, 0}};
  std::vector<SamplingParameters> all(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    const Setting& s = settings[static_cast<size_t>(r) % std::size(settings)];
    SamplingParameters& p = all[static_cast<size_t>(r)];
    p.temperature = s.temperature;
    p.top_p = s.top_p;
    p.top_k = s.top_k;
    p.min_p = s.min_p;
    p.greedy = s.greedy;
    p.seed = 0x123456789abcdefull * static_cast<uint64_t>(r + 1);
    p.counter[0] = static_cast<uint32_t>(r);
    p.counter[3] = 77;
  }
  return all;
}

inline void check_log_probs(const Rows& rows, const std::vector<SamplingParameters>& parameters,
                            const Samples& samples) {
  std::vector<float> temperatures;
  for (const SamplingParameters& p : parameters) temperatures.push_back(p.temperature);
  const auto device_temperatures = upload(temperatures);
  const auto targets = upload(samples.tokens);
  DeviceArray<float> copy(rows.device.count()), lse(rows.rows), log_probs(rows.rows);
  SLX_CUDA(cudaMemcpy(copy.data(), rows.device.data(), static_cast<size_t>(copy.count()) * 4,
                      cudaMemcpyDeviceToDevice));
  const LogitRows z = {copy.data(), rows.stride, rows.rows, rows.columns};
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(normalize_logits_workspace(rows.rows, rows.columns)));
  SLX_CUDA(
      normalize_logits(z, lse.data(), device_temperatures.data(), 1.0f, workspace.data(), nullptr));
  SLX_CUDA(
      gather_log_probs(log_probs.data(), nullptr, z, lse.data(), targets.data(), nullptr, nullptr));
  const auto want = download(log_probs);
  for (size_t r = 0; r < want.size(); ++r) {
    if (!same_bits(want[r], samples.log_probs[r])) {
      fail("log_prob of sampled row %zu of %ld columns: %.9g, normalised %.9g", r,
           long(rows.columns), samples.log_probs[r], want[r]);
    }
  }
}

// 17 rows: one of each setting.
inline void check_samples(int64_t columns, int64_t allowed, Shape shape, uint64_t seed,
                          int64_t count = 17, bool rows_alone = true) {
  Rows rows(count, columns, 0, seed, shape, false);
  const auto parameters = make_parameters(count, columns);
  const Samples samples = sample(rows.view(), parameters, allowed);
  for (int64_t r = 0; r < count; ++r) {
    const auto i = static_cast<size_t>(r);
    char where[96];
    std::snprintf(where, sizeof(where), "%s row %ld, %ld columns, %ld allowed, seed %lu",
                  name_of(shape), long(r), long(columns), long(allowed),
                  static_cast<unsigned long>(seed));
    if (rows_alone) {
      const Samples alone = sample(rows.view(r), {parameters[i]}, allowed);
      if (alone.tokens[0] != samples.tokens[i] ||
          !same_bits(alone.log_probs[0], samples.log_probs[i])) {
        fail("%s: alone token %d log_prob %.9g, in the batch %d %.9g", where, alone.tokens[0],
             alone.log_probs[0], samples.tokens[i], samples.log_probs[i]);
      }
    }
    RowReference reference(rows, r, parameters[i], allowed, samples.kept[i]);
    if (parameters[i].greedy) {
      if (samples.tokens[i] != reference.best()) {
        fail("%s: greedy token %d, expected %d", where, samples.tokens[i], reference.best());
      }
      continue;
    }
    reference.check_masses(where);
    reference.check_kept(where);
    reference.check_token(where, samples.tokens[i]);
  }
  check_log_probs(rows, parameters, samples);
}

inline void check_broken_samples(int64_t columns) {
  constexpr int64_t kRows = 20;
  Rows rows(kRows, columns, 0, 3, Shape::kNormal, false);
  const auto parameters = make_parameters(kRows, columns);
  const Samples good = sample(rows.view(), parameters, 0);
  for (int64_t r = 1; r < kRows; r += 2) {
    if (r % 3 == 0) rows.row(r)[columns - 1] = NAN;
    if (r % 3 == 1) rows.row(r)[columns / 2] = INFINITY;
    if (r % 3 == 2) std::fill_n(rows.row(r), columns, -INFINITY);
  }
  rows.send();
  const Samples got = sample(rows.view(), parameters, 0);
  for (size_t r = 0; r < kRows; ++r) {
    const int32_t want = r % 2 == 1 ? -1 : good.tokens[r];
    if (got.tokens[r] != want || (want >= 0 && !same_bits(got.log_probs[r], good.log_probs[r]))) {
      fail("row %zu beside broken rows: token %d, expected %d", r, got.tokens[r], want);
    }
  }
  // Forbidden tokens have finite logits, allowed tokens have -inf: nothing can be sampled.
  Rows forbidden(1, columns, 0, 9);
  std::fill_n(forbidden.row(0), columns / 2, -INFINITY);
  forbidden.send();
  const Samples none = sample(forbidden.view(), {SamplingParameters{}}, columns / 2);
  if (none.tokens[0] != -1) fail("all allowed are -inf: token %d", none.tokens[0]);
}

// 64 x 1024 draws from one row: the frequency of every token must match its probability.
inline void check_frequencies(const SamplingParameters& setting, const char* where) {
  constexpr int64_t kColumns = 300, kRows = 1024, kCalls = 64;
  Rows rows(kRows, kColumns, 0, 42, Shape::kNormal, false);
  for (int64_t r = 1; r < kRows; ++r) std::copy_n(rows.row(0), kColumns, rows.row(r));
  rows.send();
  std::vector<double> drawn(kColumns), probability(kColumns);
  KeptSet kept;
  for (int64_t call = 0; call < kCalls; ++call) {
    std::vector<SamplingParameters> parameters(kRows, setting);
    for (int64_t r = 0; r < kRows; ++r) {
      auto& p = parameters[static_cast<size_t>(r)];
      p.seed = 99;
      p.counter[1] = static_cast<uint32_t>(call);
      p.counter[2] = static_cast<uint32_t>(r);
    }
    const Samples samples = sample(rows.view(), parameters, 0);
    for (const int32_t token : samples.tokens) drawn[static_cast<size_t>(token)] += 1;
    kept = samples.kept[0];
  }
  double total = 0;
  for (size_t c = 0; c < kColumns; ++c) {
    const float z = rows.row(0)[c] / setting.temperature;
    const double weight = std::exp(double{z} - double{kept.maximum});
    const uint32_t key = host_key(z);
    if (key > kept.key || (key == kept.key && c <= kept.last_id)) probability[c] = weight;
    if (weight < double{kept.min_weight}) probability[c] = 0;
    total += probability[c];
  }
  double chi_square = 0;
  int cells = -1;
  double rest_expected = 0, rest_drawn = 0;  // cells too small to count by themselves
  const auto add_cell = [&](double expected, double count) {
    chi_square += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t c = 0; c < kColumns; ++c) {
    const double expected = probability[c] / total * kRows * kCalls;
    if (expected == 0 && drawn[c] > 0) fail("%s: token %zu is not kept but drawn", where, c);
    if (expected >= 20) {
      add_cell(expected, drawn[c]);
    } else {
      rest_expected += expected;
      rest_drawn += drawn[c];
    }
  }
  if (rest_expected >= 20) add_cell(rest_expected, rest_drawn);
  // Five standard deviations.
  const double limit = cells + 5 * std::sqrt(2.0 * cells);
  if (!(chi_square < limit)) {
    fail("%s: chi square %.1f of %d cells, limit %.1f", where, chi_square, cells, limit);
  }
}

inline void check_sampling(bool small) {
  std::vector<int64_t> widths = {1, 7, 256, 1000, 4100};
  if (!small) widths.insert(widths.end(), {32000, 151936});
  for (const int64_t columns : widths) {
    for (int shape = 0; shape < static_cast<int>(Shape::kCount); ++shape) {
      if (small && shape % 2 == 1) continue;
      const auto seed = static_cast<uint64_t>(columns * 10 + shape);
      check_samples(columns, 0, static_cast<Shape>(shape), seed);
      if (columns > 7 && shape % 3 == 0) {
        check_samples(columns, columns - columns / 10, static_cast<Shape>(shape), seed + 1);
      }
    }
    if (columns > 7) check_broken_samples(columns);
  }
  // More rows than get a cluster each; the last two cases use the streamed pass.
  check_samples(1000, 0, Shape::kNormal, 5, 34);
  if (small) return;
  check_samples(151936, 0, Shape::kNormal, 6, 34);
  check_samples(151936, 151643, Shape::kTies, 7, 51);
  check_frequencies({}, "untruncated");
  SamplingParameters truncated;
  truncated.temperature = 1.4f;
  truncated.top_k = 60;
  truncated.top_p = 0.97f;
  check_frequencies(truncated, "top_k 60, top_p 0.97");
  SamplingParameters floor;
  floor.min_p = 0.02f;
  check_frequencies(floor, "min_p 0.02");
}

}  // namespace slimexx::kernels::testing
