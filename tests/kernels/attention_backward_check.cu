// Gradients of attention on the device: values against fp64 references, the same bits across runs
// and batches, and memory that must stay untouched.
//   attention_backward_check [small | tiny | values | large | bits]
// Without a word: values, large and bits. `small` is for compute-sanitizer's memcheck, `tiny` for
// its racecheck (in a build with SLX_KERNEL_RACECHECK). Exit status 1 on any difference.
#include <cuda_bf16.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/need_device.h"

namespace slimexx::kernels::testing {
namespace {

void describe_world(const char* what, const World& w) {
  std::printf("%s hq %d hk %d d %d, %zu sequences, %ld tokens: ", what, w.shape.hq, w.shape.hk,
              w.shape.d, w.lengths.size(), static_cast<long>(w.tokens));
}

void check_guards(const Run& run, const Bits& bits) {
  const World& w = run.world;
  const int64_t used = w.starts.back() + w.lengths.back();
  int64_t touched = 0, first = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(bits.size()); ++i) {
    const int64_t token = i / run.gradients.stride - kGuardRows;
    const bool inside = token >= 0 && token < used && i % run.gradients.stride < w.row();
    if (inside || bits[static_cast<size_t>(i)] == kGuard) continue;
    if (touched++ == 0) first = i;
  }
  if (touched == 0) return;
  std::printf("%ld values outside written, first at token %ld column %ld\n",
              static_cast<long>(touched),
              static_cast<long>(first / run.gradients.stride - kGuardRows),
              static_cast<long>(first % run.gradients.stride));
  ++failures;
}

// Gradients of one query head of one sequence in fp64, from q, k, v, dout and the rounded out. Like
// the kernels it computes D = dout . out from the rounded out, because dP - D may nearly cancel.
struct HostHead {
  int length, d;
  std::vector<double> q, k, v, dout, out, dq, dk, dv;
  HostHead(const World& w, const Bits& out_bits, int sequence, int head)
      : length(w.lengths[sequence]), d(w.shape.d) {
    const Shape& s = w.shape;
    const int64_t first = w.starts[sequence], kv = head / (s.hq / s.hk);
    const auto read = [&](const Bits& from, int64_t row, int64_t column) {
      std::vector<double> x(static_cast<size_t>(length * d));
      for (int t = 0; t < length; ++t) {
        for (int i = 0; i < d; ++i) x[t * d + i] = to_float(from[(first + t) * row + column + i]);
      }
      return x;
    };
    q = read(w.projected, w.row(), int64_t{head} * d);
    k = read(w.projected, w.row(), s.q_row() + kv * d);
    v = read(w.projected, w.row(), s.q_row() + s.k_row() + kv * d);
    dout = read(w.dout, s.q_row(), int64_t{head} * d);
    out = read(out_bits, s.q_row(), int64_t{head} * d);
    dq.assign(q.size(), 0.0), dk = dq, dv = dq;
    for (int t = 0; t < length; ++t) differentiate(t);
  }
  double dot(const std::vector<double>& a, int i, const std::vector<double>& b, int j) const {
    double sum = 0;
    for (int c = 0; c < d; ++c) sum += a[i * d + c] * b[j * d + c];
    return sum;
  }
  void differentiate(int t) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    std::vector<double> p(t + 1);
    double highest = -INFINITY, total = 0;
    for (int j = 0; j <= t; ++j) highest = std::max(highest, p[j] = scale * dot(q, t, k, j));
    for (double& x : p) total += x = std::exp(x - highest);
    const double mean = dot(dout, t, out, t);
    for (int j = 0; j <= t; ++j) {
      p[j] /= total;
      const double ds = scale * p[j] * (dot(dout, t, v, j) - mean);
      for (int c = 0; c < d; ++c) {
        dq[t * d + c] += ds * k[j * d + c];
        dk[j * d + c] += ds * q[t * d + c];
        dv[j * d + c] += p[j] * dout[t * d + c];
      }
    }
  }
};

// Gradients of one sequence, [tokens, (hq + 2 hk) d]; dk and dv are sums over the heads of a group.
std::vector<double> differentiate_on_host(const World& w, const Bits& out, int sequence) {
  const Shape& s = w.shape;
  std::vector<double> result(static_cast<size_t>(w.lengths[sequence] * w.row()));
  std::vector<std::vector<HostHead>> heads(static_cast<size_t>(s.hq));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (int h; (h = next++) < s.hq;) heads[h].emplace_back(w, out, sequence, h);
    });
  }
  for (std::thread& t : threads) t.join();
  for (int h = 0; h < s.hq; ++h) {
    const HostHead& head = heads[h][0];
    const int64_t kv = h / (s.hq / s.hk);
    for (int t = 0; t < head.length; ++t) {
      for (int c = 0; c < s.d; ++c) {
        double* row = &result[t * w.row()];
        row[int64_t{h} * s.d + c] = head.dq[t * s.d + c];
        row[s.q_row() + kv * s.d + c] += head.dk[t * s.d + c];
        row[s.q_row() + s.k_row() + kv * s.d + c] += head.dv[t * s.d + c];
      }
    }
  }
  return result;
}

// Statistics of the differences in one of dq, dk and dv.
struct Tally {
  double error = 0, norm = 0, worst = 0, worst_got = 0, worst_expected = 0;
  int64_t count = 0, worst_token = 0, worst_column = 0;
  void add(double got, double expected, int64_t token, int64_t column) {
    const double difference = std::abs(got - expected);
    error += difference * difference;
    norm += expected * expected;
    ++count;
    if (difference <= worst) return;
    worst = difference, worst_got = got, worst_expected = expected;
    worst_token = token, worst_column = column;
  }
  double relative() const { return std::sqrt(error / std::max(norm, 1e-4 * count)); }
  // P, dS, out and the result are rounded to bf16: at most 2^-9 and 1.7e-3 rms each. A single value
  // may differ by a rounding of the largest term of its sum.
  bool good() const {
    const double rms = std::sqrt(std::max(norm, 1e-4 * count) / count);
    return relative() < 6e-3 && worst < 0.02 * std::abs(worst_expected) + 0.06 * rms;
  }
};

constexpr const char* kNames[3] = {"dq", "dk", "dv"};

int kind_of(const World& w, int64_t column) {
  return column < w.shape.q_row() ? 0 : column < w.shape.q_row() + w.shape.k_row() ? 1 : 2;
}

void report(const char* where, const Tally (&tally)[3], uint64_t seed) {
  for (int i = 0; i < 3; ++i) {
    if (tally[i].good()) continue;
    std::printf(
        "\n%s %s: relative %.2e, worst at token %ld column %ld: %.6g, expected %.6g (seed %lu)",
        where, kNames[i], tally[i].relative(), static_cast<long>(tally[i].worst_token),
        static_cast<long>(tally[i].worst_column), tally[i].worst_got, tally[i].worst_expected,
        static_cast<unsigned long>(seed));
    ++failures;
  }
}

void check_values(Shape shape, const std::vector<int>& lengths, uint64_t seed) {
  const World w(shape, lengths, seed, 5);
  Run run(w);
  const Bits bits = run.backward();
  const Bits out = run.read_out();
  describe_world("values", w);
  Tally all[3];
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
    const std::vector<double> expected = differentiate_on_host(w, out, s);
    Tally tally[3];
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t token = w.starts[s] + static_cast<int64_t>(i) / w.row();
      const int64_t column = static_cast<int64_t>(i) % w.row();
      const double got = to_float(run.gradient(bits, token, column));
      tally[kind_of(w, column)].add(got, expected[i], token, column);
      all[kind_of(w, column)].add(got, expected[i], token, column);
    }
    report(("length " + std::to_string(lengths[s])).c_str(), tally, seed);
  }
  std::printf("relative dq %.2e dk %.2e dv %.2e\n", all[0].relative(), all[1].relative(),
              all[2].relative());
  check_guards(run, bits);
}

// One thread block per sampled row (token, head): computes dq, or with `keys` dk and dv of the kv
// head. Plain fp64 sums with the forward's lse.
__global__ void differentiate_row(AttentionBackward b, const int4* samples, bool keys,
                                  double* result) {
  extern __shared__ double terms[];         // [2][blockDim.x]
  const int4 sample = samples[blockIdx.x];  // first token, length, position, head
  const int d = static_cast<int>(b.head_dim), group = static_cast<int>(b.query_heads / b.kv_heads);
  const auto at = [&](const void* base, int64_t stride, int position, int head) {
    return static_cast<const Bf16*>(base) + (sample.x + position) * stride + head * d;
  };
  const auto dot = [&](const Bf16* x, const Bf16* y) {
    double sum = 0;
    for (int c = 0; c < d; ++c)
      sum += double(__bfloat162float(x[c])) * double(__bfloat162float(y[c]));
    return sum;
  };
  double sums[2] = {0, 0};
  const int first_head = keys ? sample.w * group : sample.w, heads = keys ? group : 1;
  for (int head = first_head; head < first_head + heads; ++head) {
    const int kv = head / group;
    const int from = keys ? sample.z : 0, to = keys ? sample.y : sample.z + 1;
    for (int base = from; base < to; base += blockDim.x) {
      const int other = base + static_cast<int>(threadIdx.x);
      double p = 0, ds = 0;
      if (other < to) {
        const int query = keys ? other : sample.z, key = keys ? sample.z : other;
        const Bf16* dout = at(b.dout, b.dout_stride, query, head);
        const double s = dot(at(b.q, b.q_stride, query, head), at(b.k, b.k_stride, key, kv));
        p = exp(s * b.scale - double(b.lse[(sample.x + query) * b.query_heads + head]));
        ds = p * b.scale *
             (dot(dout, at(b.v, b.v_stride, key, kv)) -
              dot(dout, at(b.out, b.out_stride, query, head)));
      }
      terms[threadIdx.x] = ds;
      terms[blockDim.x + threadIdx.x] = p;
      __syncthreads();
      const int column = static_cast<int>(threadIdx.x);
      for (int i = 0; column < d && i < min(static_cast<int>(blockDim.x), to - base); ++i) {
        if (keys) {
          sums[0] +=
              terms[i] * double(__bfloat162float(at(b.q, b.q_stride, base + i, head)[column]));
          sums[1] += terms[blockDim.x + i] *
                     double(__bfloat162float(at(b.dout, b.dout_stride, base + i, head)[column]));
        } else {
          sums[0] += terms[i] * double(__bfloat162float(at(b.k, b.k_stride, base + i, kv)[column]));
        }
      }
      __syncthreads();
    }
  }
  if (static_cast<int>(threadIdx.x) < d) {
    result[(2 * blockIdx.x) * d + threadIdx.x] = sums[0];
    result[(2 * blockIdx.x + 1) * d + threadIdx.x] = sums[1];
  }
}

// The first and last rows of every sequence and `count` random rows.
std::vector<int4> draw_samples(const World& w, int heads, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int4> samples;
  for (size_t s = 0; s < w.lengths.size(); ++s) {
    for (int position : {0, w.lengths[s] / 2, w.lengths[s] - 1}) {
      samples.push_back({w.starts[s], w.lengths[s], position, static_cast<int>(random() % heads)});
    }
  }
  for (int i = 0; i < count; ++i) {
    const size_t s = random() % w.lengths.size();
    samples.push_back({w.starts[s], w.lengths[s], static_cast<int>(random() % w.lengths[s]),
                       static_cast<int>(random() % heads)});
  }
  return samples;
}

void check_large(Shape shape, const std::vector<int>& lengths, uint64_t seed) {
  const World w(shape, lengths, seed);
  Run run(w);
  const Bits bits = run.backward();
  describe_world("large", w);
  Tally tally[3];
  for (const bool keys : {false, true}) {
    const std::vector<int4> samples =
        draw_samples(w, keys ? shape.hk : shape.hq, keys ? 200 : 1000, seed);
    DeviceArray<int4> device_samples(static_cast<int64_t>(samples.size()));
    DeviceArray<double> device_result(2 * static_cast<int64_t>(samples.size()) * shape.d);
    SLX_CUDA(cudaMemcpy(device_samples.data(), samples.data(), samples.size() * sizeof(int4),
                        cudaMemcpyHostToDevice));
    differentiate_row<<<static_cast<unsigned>(samples.size()), 256, 2 * 256 * sizeof(double)>>>(
        run.problem, device_samples.data(), keys, device_result.data());
    std::vector<double> expected(static_cast<size_t>(device_result.count()));
    SLX_CUDA(cudaMemcpy(expected.data(), device_result.data(), expected.size() * sizeof(double),
                        cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < expected.size(); ++i) {
      const int4 sample = samples[i / (2 * shape.d)];
      const bool second = i / shape.d % 2 != 0;
      if (second && !keys) continue;
      const int64_t column = int64_t{sample.w} * shape.d + static_cast<int64_t>(i % shape.d) +
                             (keys ? shape.q_row() : 0) + (second ? shape.k_row() : 0);
      const int64_t token = sample.x + sample.z;
      tally[kind_of(w, column)].add(to_float(run.gradient(bits, token, column)), expected[i], token,
                                    column);
    }
  }
  report("large", tally, seed);
  std::printf("relative dq %.2e dk %.2e dv %.2e\n", tally[0].relative(), tally[1].relative(),
              tally[2].relative());
  check_guards(run, bits);
}

// Compares the rows of sequence `mine` in `run` with those of sequence `theirs` in `other`.
int64_t count_differing_rows(const Run& run, const Bits& bits, int mine, const Run& other,
                             const Bits& other_bits, int theirs) {
  const World& w = run.world;
  int64_t differing = 0;
  for (int t = 0; t < w.lengths[mine]; ++t) {
    const auto a = bits.begin() + (kGuardRows + w.starts[mine] + t) * run.gradients.stride;
    const auto b =
        other_bits.begin() + (kGuardRows + other.world.starts[theirs] + t) * other.gradients.stride;
    if (std::equal(a, a + w.row(), b)) continue;
    if (differing++ == 0) std::printf("first differing row: sequence %d token %d\n", mine, t);
  }
  return differing;
}

void check_bits(Shape shape, const std::vector<int>& lengths, int repeats, uint64_t seed) {
  World w(shape, lengths, seed);
  Run run(w);
  const Bits bits = run.backward();
  int64_t differing = 0;
  for (int i = 0; i < repeats; ++i) differing += run.backward() != bits;
  const int count = static_cast<int>(lengths.size());
  std::vector<int> order;
  for (int s = 0; s < count; ++s) order.push_back(s);
  for (int s = 0; s < count; ++s) {  // each sequence alone
    const World part = w.select({s});
    Run alone(part);
    differing += count_differing_rows(alone, alone.backward(), 0, run, bits, s);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  const World shuffled = w.select(order);
  Run moved(shuffled);
  const Bits moved_bits = moved.backward();
  for (int s = 0; s < count; ++s) {
    differing += count_differing_rows(moved, moved_bits, s, run, bits, order[s]);
  }
  // If every second sequence holds NaN, the other sequences must keep their bits.
  World poisoned = w;
  for (int s = 1; s < count; s += 2) {
    const auto spoil = [&](Bits& x, int64_t row) {
      std::fill_n(x.begin() + w.starts[s] * row, w.lengths[s] * row, uint16_t{0x7fc0});
    };
    spoil(poisoned.projected, w.row());
    spoil(poisoned.dout, shape.q_row());
  }
  Run beside(poisoned);
  const Bits beside_bits = beside.backward();
  for (int s = 0; s < count; s += 2) {
    differing += count_differing_rows(beside, beside_bits, s, run, bits, s);
  }
  describe_world("bits", w);
  std::printf("%ld runs or rows differ (%d repeats, alone, shuffled, beside NaN; seed %lu)\n",
              static_cast<long>(differing), repeats, static_cast<unsigned long>(seed));
  failures += differing != 0;
}

const std::vector<int> kMixed = {1, 2, 63, 64, 65, 127, 128, 129, 200, 1000};

void run_mode(const std::string& mode) {
  if (mode == "small") {
    check_values({4, 2, 128}, {130, 1, 65}, 1);
    check_values({5, 1, 64}, {65, 200}, 2);
    check_bits({2, 2, 128}, {3, 130}, 1, 3);
  } else if (mode == "tiny") {  // full and partial tiles, more rows than a ring has stages
    check_values({2, 1, 128}, {3, 330}, 4);
    check_values({2, 2, 64}, {330}, 5);
    check_values({5, 1, 64}, {70}, 6);
  } else if (mode == "values") {
    uint64_t seed = 10;
    for (const int d : {64, 128}) {
      check_values({1, 1, d}, kMixed, ++seed);
      check_values({4, 1, d}, kMixed, ++seed);
      check_values({8, 2, d}, kMixed, ++seed);
      check_values({32, 2, d}, kMixed, ++seed);
      check_values({14, 2, d}, {300, 40}, ++seed);
    }
  } else if (mode == "large") {
    check_large({32, 2, 128}, {8192}, 30);
    check_large({32, 8, 128}, std::vector<int>(8, 1024), 31);
    check_large({32, 8, 128}, {700, 3100, 250, 1800, 90, 2252}, 32);
    check_large({16, 8, 64}, {8192}, 33);
    check_large({16, 1, 64}, {4097, 4095}, 34);
  } else if (mode == "bits") {
    check_bits({8, 2, 128}, kMixed, 20, 40);
    check_bits({32, 2, 64}, kMixed, 20, 41);
    check_bits({32, 8, 128}, {700, 3100, 250, 1800}, 50, 42);
  } else if (mode == "all") {
    for (const char* each : {"values", "large", "bits"}) run_mode(each);
  } else {
    std::printf("no mode %s\n", mode.c_str());
    ++failures;
  }
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "all";
  slimexx::kernels::testing::need_device();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  slimexx::kernels::testing::run_mode(mode);
  std::printf("%s: %d failures\n", mode.c_str(), slimexx::kernels::testing::failures);
  return slimexx::kernels::testing::failures != 0;
}
