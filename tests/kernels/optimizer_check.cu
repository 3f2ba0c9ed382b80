// AdamW bit for bit against the same fp32 operations on the host, with segments of all alignments
// and moments in fp32 and bf16. The sum of squares against long double, and for equal bits.
//
//   optimizer_check [small | tiny]      for compute-sanitizer: check_size.h
#include "slimexx/kernels/optimizer.h"

#include "tests/kernels/check_size.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {
namespace {

// M: float, or uint16_t for the bits of bf16.
template <class M>
struct State {
  std::vector<uint16_t> weights;
  std::vector<float> master;
  std::vector<M> exp_avg, exp_avg_sq;
};

void round_to(float& moment, float value) { moment = value; }
void round_to(uint16_t& moment, float value) { moment = round_to_bf16(value); }
template <class M>
std::vector<M> all_rounded(const std::vector<float>& values) {
  std::vector<M> moments(values.size());
  for (size_t i = 0; i < values.size(); ++i) round_to(moments[i], values[i]);
  return moments;
}

AdamWArgs make_args(int step) {
  AdamWArgs a;
  a.lr = 1e-3f;
  a.beta1 = 0.9f;
  a.beta2 = 0.98f;
  a.eps = 1e-8f;
  a.gradient_scale = 0.7f;
  a.bias_correction1 = 1.0 - std::pow(double(a.beta1), double(step));
  a.bias_correction2 = 1.0 - std::pow(double(a.beta2), double(step));
  return a;
}

template <class M>
void step_on_host(State<M>& s, const std::vector<float>& gradient, const AdamWArgs& a, int64_t i,
                  float weight_decay) {
  const auto c1 = static_cast<float>(1.0 - double(a.beta1));
  const auto c2 = static_cast<float>(1.0 - double(a.beta2));
  const auto step_size = static_cast<float>(a.lr / a.bias_correction1);
  const auto root = static_cast<float>(1.0 / std::sqrt(a.bias_correction2));
  const auto decay = static_cast<float>(1.0 - double(a.lr) * double(weight_decay));
  const float g = gradient[i] * a.gradient_scale;
  const float exp_avg = std::fma(a.beta1, to_float(s.exp_avg[i]), c1 * g);
  const float exp_avg_sq = std::fma(a.beta2, to_float(s.exp_avg_sq[i]), c2 * g * g);
  round_to(s.exp_avg[i], exp_avg);
  round_to(s.exp_avg_sq[i], exp_avg_sq);
  const float scaled = std::sqrt(exp_avg_sq) * root;
  const float denominator = scaled + a.eps;
  const float change = step_size * exp_avg / denominator;
  const float kept = s.master[i] * decay;
  s.master[i] = kept - change;
  s.weights[i] = round_to_bf16(s.master[i]);
}

// `shift`: elements by which all arrays are misaligned.
template <class M>
void check_adamw_of(int64_t n, const std::vector<AdamWSegment>& segments, int64_t shift,
                    bool with_weights) {
  current_case = std::string(sizeof(M) == 2 ? "adamw_bf16_moments" : "adamw") + " n " +
                 std::to_string(n) + " segments " + std::to_string(segments.size()) + " shift " +
                 std::to_string(shift) + " weights " + std::to_string(with_weights);
  State<M> s{random_bf16(n), random_floats(n), all_rounded<M>(random_floats(n, 0.1f)), {}};
  std::vector<float> squares = random_floats(n, 0.1f);
  for (float& v : squares) v = std::abs(v);
  s.exp_avg_sq = all_rounded<M>(squares);
  const Array<uint16_t> weights(s.weights, shift);
  const FloatArray master(s.master, shift);
  const Array<M> avg(s.exp_avg, shift), avg_sq(s.exp_avg_sq, shift);
  const Array<AdamWSegment> list(segments);
  const State<M> before = s;
  for (int step = 1; step <= 2; ++step) {
    const std::vector<float> gradient = random_floats(n, step == 1 ? 1.0f : 1e-3f);
    const FloatArray device_gradient(gradient, shift);
    AdamWArgs a = make_args(step);
    a.weights = with_weights ? weights.data() : nullptr;
    a.master = master.data();
    a.exp_avg = avg.data();
    a.exp_avg_sq = avg_sq.data();
    a.moments = sizeof(M) == 2 ? MomentType::kBf16 : MomentType::kF32;
    a.gradient = device_gradient.data();
    a.n = n;
    expect_status("adamw", adamw(a, list.data(), static_cast<int64_t>(segments.size()), 0),
                  cudaSuccess);
    for (const AdamWSegment& segment : segments)
      for (int64_t i = segment.begin; i < segment.end; ++i)
        step_on_host(s, gradient, a, i, segment.weight_decay);
    device_gradient.get();
  }
  expect_bits("master", master.get(), s.master, n);
  expect_bits("exp_avg", avg.get(), s.exp_avg, n);
  expect_bits("exp_avg_sq", avg_sq.get(), s.exp_avg_sq, n);
  expect_bits("weights", weights.get(), with_weights ? s.weights : before.weights, n);
}

void check_adamw(int64_t n, const std::vector<AdamWSegment>& segments, int64_t shift,
                 bool with_weights) {
  check_adamw_of<float>(n, segments, shift, with_weights);
  check_adamw_of<uint16_t>(n, segments, shift, with_weights);
}

// Segments of random lengths, some adjacent, some with gaps; most start at multiples of 16.
std::vector<AdamWSegment> random_segments(int64_t n, int64_t longest) {
  std::mt19937_64 engine(++current_seed);
  std::vector<AdamWSegment> segments;
  for (int64_t at = 0; at < n;) {
    const auto length = static_cast<int64_t>(1 + engine() % static_cast<uint64_t>(longest));
    const int64_t end = std::min(n, at + length);
    segments.push_back({at, end, engine() % 2 == 0 ? 0.0f : 0.1f});
    at = engine() % 3 == 0 ? end : (end + 15) / 16 * 16;
  }
  return segments;
}

// Segments whose state is contiguous while weights and gradients have gaps of `gap` elements: the
// bits must equal those of a call whose state has the same gaps.
void check_pieces(const std::vector<int64_t>& lengths, int64_t gap) {
  current_case = "adamw pieces " + std::to_string(lengths.size()) + " gap " + std::to_string(gap);
  std::vector<AdamWSegment> dense, flat;
  int64_t n = 0, m = gap;
  for (const int64_t length : lengths) {
    const float decay = dense.size() % 2 == 0 ? 0.1f : 0.0f;
    dense.push_back({n, n + length, decay, m - n});
    flat.push_back({m, m + length, decay});
    n += length;
    m += length + gap;
  }
  const std::vector<float> master = random_floats(m), avg = random_floats(m, 0.1f),
                           gradient = random_floats(m);
  std::vector<float> avg_sq = random_floats(m, 0.1f);
  for (float& v : avg_sq) v = std::abs(v);
  const std::vector<uint16_t> weights = random_bf16(m);
  const auto run = [&](const std::vector<AdamWSegment>& segments, std::vector<float> p,
                       std::vector<float> a, std::vector<float> s) {
    const FloatArray device_p(p), device_a(a), device_s(s), device_g(gradient);
    const Array<uint16_t> device_w(weights);
    const Array<AdamWSegment> list(segments);
    AdamWArgs args = make_args(2);
    args.weights = device_w.data(), args.master = device_p.data(), args.exp_avg = device_a.data();
    args.exp_avg_sq = device_s.data(), args.gradient = device_g.data();
    args.n = static_cast<int64_t>(p.size());
    expect_status("adamw", adamw(args, list.data(), static_cast<int64_t>(segments.size()), 0),
                  cudaSuccess);
    device_g.get();
    return std::tuple{device_w.get(), device_p.get(), device_a.get(), device_s.get()};
  };
  const auto pick = [&](const std::vector<float>& all) {
    std::vector<float> own(static_cast<size_t>(n));
    for (const AdamWSegment& s : dense)
      for (int64_t i = s.begin; i < s.end; ++i) own[i] = all[i + s.shift];
    return own;
  };
  const auto [w, p, a, s] = run(flat, master, avg, avg_sq);
  const auto [got_w, got_p, got_a, got_s] = run(dense, pick(master), pick(avg), pick(avg_sq));
  expect_bits("weights", got_w, w, m);
  expect_bits("master", got_p, pick(p), n);
  expect_bits("exp_avg", got_a, pick(a), n);
  expect_bits("exp_avg_sq", got_s, pick(s), n);
}

// Sum of squares over several ranges: against long double, and the same bits with the ranges at
// other addresses. The tiles of a range must not depend on the other ranges.
void check_sum_of_ranges(const std::vector<int64_t>& lengths) {
  current_case = "sum_of_squares of " + std::to_string(lengths.size()) + " ranges";
  std::vector<double> sums;
  std::vector<std::vector<float>> values;
  long double exact = 0;
  for (const int64_t length : lengths) {
    values.push_back(random_floats(length));
    for (const float v : values.back()) exact += static_cast<long double>(v) * v;
  }
  for (const int64_t gap : {0, 16, 21}) {
    std::vector<float> x(gap, 1e6f);
    std::vector<SquareRange> ranges;
    for (const auto& v : values) {
      const auto begin = static_cast<int64_t>(x.size());
      x.insert(x.end(), v.begin(), v.end());
      ranges.push_back({begin, static_cast<int64_t>(x.size())});
      x.insert(x.end(), gap, 1e6f);
    }
    const auto count = static_cast<int64_t>(ranges.size());
    const int64_t tiles = lay_out_tiles(ranges.data(), count);
    const FloatArray device(x);
    const Array<SquareRange> list(ranges);
    const Array<double> sum(1), workspace(tiles);
    expect_status("sum_of_squares",
                  sum_of_squares(sum.data(), device.data(), ranges[0], list.data(), count, tiles,
                                 workspace.data(), 0),
                  cudaSuccess);
    workspace.get();
    sums.push_back(sum.get()[0]);
  }
  ++comparisons;
  if (std::abs(sums[0] - static_cast<double>(exact)) > 1e-13 * static_cast<double>(exact)) {
    ++failures;
    std::printf("FAIL %s: %.17g, expected %.17g (seed %lu)\n", current_case.c_str(), sums[0],
                static_cast<double>(exact), static_cast<unsigned long>(current_seed));
  }
  expect_bits("elsewhere", sums, std::vector<double>(sums.size(), sums[0]),
              static_cast<int64_t>(sums.size()));
}

std::vector<double> run_sum(const std::vector<float>& x, int64_t shift) {
  const auto n = static_cast<int64_t>(x.size());
  const FloatArray device(x, shift);
  const Array<double> sum(1);
  const Array<char> workspace(static_cast<int64_t>(sum_of_squares_workspace(n)));
  expect_status("sum_of_squares", sum_of_squares(sum.data(), device.data(), n, workspace.data(), 0),
                cudaSuccess);
  workspace.get();
  return sum.get();
}

void check_sum(int64_t n) {
  current_case = "sum_of_squares n " + std::to_string(n);
  std::vector<float> x = random_floats(n, 1e-3f);
  if (n > 2) x[n / 2] = 3e19f;  // its square overflows float
  long double exact = 0;
  for (float v : x) exact += static_cast<long double>(v) * v;
  const std::vector<double> got = run_sum(x, 0);
  ++comparisons;
  if (std::abs(got[0] - static_cast<double>(exact)) > 1e-13 * static_cast<double>(exact)) {
    ++failures;
    std::printf("FAIL %s: %.17g, expected %.17g (seed %lu)\n", current_case.c_str(), got[0],
                static_cast<double>(exact), static_cast<unsigned long>(current_seed));
  }
  expect_bits("again", run_sum(x, 0), got, 1);
  expect_bits("off alignment", run_sum(x, 1), got, 1);
  if (n < 2) return;
  x[1] = HUGE_VALF;
  expect_bits("infinity", run_sum(x, 0), std::vector<double>{HUGE_VAL}, 1);
  x[0] = NAN;
  ++comparisons;
  if (!std::isnan(run_sum(x, 0)[0])) {
    ++failures;
    std::printf("FAIL %s: NaN is lost\n", current_case.c_str());
  }
}

int run(bool small) {
  check_adamw(1, {{0, 1, 0.1f}}, 0, true);
  check_adamw(100, {{0, 16, 0.1f}, {16, 23, 0.0f}, {23, 25, 0.2f}, {40, 100, 0.1f}}, 0, true);
  check_adamw(100, {{3, 97, 0.1f}}, 0, false);
  check_adamw(5000, random_segments(5000, 900), 0, true);
  check_adamw(5000, random_segments(5000, 20), 1, true);
  for (const int64_t n : {0, 1, 5, 1000, 32768, 32770}) check_sum(n);
  check_pieces({4096}, 32);
  check_pieces({16, 2048, 160, 4000, 8, 48}, 16);
  check_pieces({100, 3, 5000, 1, 17}, 5);
  check_sum_of_ranges({4096, 40000});
  check_sum_of_ranges({1, 65536, 5, 32768, 32769, 100000});
  if (!small) {
    check_pieces({1000000, 16, 2000000}, 48);
    check_sum_of_ranges({3000000, 4, 2000001});
    check_adamw(3000001, random_segments(3000001, 50000), 0, true);
    check_adamw(3000001, random_segments(3000001, 9), 0, true);
    check_adamw(9000000, {{16, 8999999, 0.1f}}, 0, true);
    check_sum(5000001);
  }
  // A shift of 4 elements is 16 bytes in fp32 but 8 in bf16, so only bf16 moments are misaligned.
  check_adamw(5000, random_segments(5000, 900), 4, false);
  current_case = "nothing to do";
  expect_status("adamw", adamw(AdamWArgs{}, nullptr, 0, 0), cudaSuccess);
  expect_status("synchronise", cudaDeviceSynchronize(), cudaSuccess);
  return finish_checks("optimizer_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv) != CheckSize::kAll);
}
