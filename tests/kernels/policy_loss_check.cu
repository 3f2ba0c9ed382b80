// The token losses on the device against the CPU implementation of ops/policy_loss.h: every kind of
// loss, KL estimate and importance sampling, absent arrays, several sequences, odd values.
//   policy_loss_check [small | tiny]      for compute-sanitizer: check_size.h
// Exit status 1 on any mismatch.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "ops/cpu/policy_loss.h"
#include "slimexx/kernels/policy_loss.h"
#include "slimexx/kernels/token_loss.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {
namespace {

using tensor::DType;
using tensor::Tensor;
using Floats = std::vector<float>;

int failures = 0;

// Absent arrays are empty.
struct Inputs {
  Floats log_probs, entropies, old_log_probs, ref_log_probs, rollout_log_probs, advantages, mask,
      weights;
  std::vector<int32_t> cu_rows;
};

enum class Values { kUsual, kFar, kBroken };

Inputs make_inputs(const std::vector<int32_t>& lengths, Values values, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  Inputs in;
  in.cu_rows.push_back(0);
  for (const int32_t n : lengths) in.cu_rows.push_back(in.cu_rows.back() + n);
  const float spread = values == Values::kUsual ? 0.2f : 30.0f;
  for (int32_t r = 0; r < in.cu_rows.back(); ++r) {
    const float log_prob = -std::fabs(2 * normal(random));
    in.log_probs.push_back(log_prob);
    in.entropies.push_back(std::fabs(normal(random)));
    in.old_log_probs.push_back(log_prob + (r % 4 == 0 ? 0 : spread * normal(random)));
    in.ref_log_probs.push_back(log_prob + (r % 5 == 0 ? 1e-6f : spread * normal(random)));
    in.rollout_log_probs.push_back(in.old_log_probs.back() +
                                   (r % 3 == 0 ? 0 : spread * normal(random)));
    in.advantages.push_back(r % 7 == 0 ? 0 : 2 * normal(random));
    in.mask.push_back(r % 6 == 5 ? 0.0f : 1.0f);
    in.weights.push_back(in.mask.back() * uniform(random) / 64);
    if (values == Values::kBroken) {
      if (r % 11 == 3) in.log_probs.back() = NAN;
      if (r % 13 == 4) in.rollout_log_probs.back() = -INFINITY;
      if (r % 17 == 5) in.old_log_probs.back() = -1e5f;
    }
  }
  return in;
}

struct Outputs {
  Floats dlog_probs, dentropies;
  std::vector<double> metrics;
};

// Values of the metrics before the call, which adds to them.
std::vector<double> first_metrics() {
  std::vector<double> metrics(static_cast<size_t>(ops::kNumLossMetrics));
  for (size_t m = 0; m < metrics.size(); ++m) metrics[m] = 0.01 * static_cast<double>(m);
  return metrics;
}

Outputs run_cpu(Inputs& in, const ops::PolicyLossOptions& options, bool with_dentropies) {
  const auto rows = static_cast<int64_t>(in.log_probs.size());
  const auto view = [](Floats& v) {
    return v.empty() ? Tensor()
                     : Tensor(v.data(), DType::kF32, {}, {static_cast<int64_t>(v.size())});
  };
  Outputs out = {Floats(in.log_probs.size(), 7), {}, first_metrics()};
  if (with_dentropies) out.dentropies.assign(in.log_probs.size(), 7);
  ops::PolicyLossRows tensors;
  tensors.log_probs = view(in.log_probs);
  tensors.entropies = view(in.entropies);
  tensors.old_log_probs = view(in.old_log_probs);
  tensors.ref_log_probs = view(in.ref_log_probs);
  tensors.rollout_log_probs = view(in.rollout_log_probs);
  tensors.advantages = view(in.advantages);
  tensors.mask = view(in.mask);
  tensors.weights = view(in.weights);
  tensors.cu_rows = in.cu_rows;
  ops::cpu::policy_loss(
      Tensor(out.dlog_probs.data(), DType::kF32, {}, {rows}), view(out.dentropies),
      Tensor(out.metrics.data(), DType::kF64, {}, {ops::kNumLossMetrics}), tensors, options);
  return out;
}

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
  DeviceArray<T> device(std::max<int64_t>(1, static_cast<int64_t>(host.size())));
  SLX_CUDA(cudaMemcpy(device.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

template <class T>
std::vector<T> download(const DeviceArray<T>& device, size_t count) {
  std::vector<T> host(count);
  SLX_CUDA(cudaMemcpy(host.data(), device.data(), count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

Outputs run_device(const Inputs& in, const ops::PolicyLossOptions& o, bool with_dentropies) {
  std::vector<DeviceArray<float>> kept;
  const auto send = [&](const Floats& v) -> const float* {
    if (v.empty()) return nullptr;
    kept.push_back(upload(v));
    return kept.back().data();
  };
  PolicyLossArgs args;
  args.options = o;
  args.log_probs = send(in.log_probs);
  args.entropies = send(in.entropies);
  args.old_log_probs = send(in.old_log_probs);
  args.ref_log_probs = send(in.ref_log_probs);
  args.rollout_log_probs = send(in.rollout_log_probs);
  args.advantages = send(in.advantages);
  args.mask = send(in.mask);
  args.weights = send(in.weights);
  args.rows = static_cast<int64_t>(in.log_probs.size());
  args.sequences = static_cast<int64_t>(in.cu_rows.size()) - 1;
  const auto cu_rows = upload(in.cu_rows);
  if (takes_sequence_means(o)) args.cu_rows = cu_rows.data();
  const size_t rows = in.log_probs.size();
  const auto dlog_probs = upload(Floats(rows, 7)), dentropies = upload(Floats(rows, 7));
  const auto metrics = upload(first_metrics());
  args.dlog_probs = dlog_probs.data();
  args.dentropies = with_dentropies ? dentropies.data() : nullptr;
  args.metrics = metrics.data();
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(policy_loss_workspace(args.rows, args.sequences)));
  workspace.set_bytes(0xff);
  SLX_CUDA(policy_loss(args, workspace.data(), nullptr));
  return {download(dlog_probs, rows), with_dentropies ? download(dentropies, rows) : Floats(),
          download(metrics, static_cast<size_t>(ops::kNumLossMetrics))};
}

bool close(double a, double b, double scale, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= tolerance * (std::fabs(b) + scale);
}

template <class T>
void compare(const char* what, const char* where, const std::vector<T>& got,
             const std::vector<T>& want, const std::vector<double>& scales, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double scale = scales.size() == 1 ? scales[0] : scales[i];
    if (close(double{got[i]}, double{want[i]}, scale, tolerance)) continue;
    if (++failures <= 20) {
      std::printf("FAIL %s: %s[%zu] = %.9g, expected %.9g\n", where, what, i, double{got[i]},
                  double{want[i]});
    }
    return;
  }
}

// Magnitude of the terms of a row's derivative, which may cancel.
std::vector<double> derivative_scales(const Inputs& in, const ops::PolicyLossOptions& o) {
  std::vector<double> scales;
  for (size_t r = 0; r < in.log_probs.size(); ++r) {
    const double log_prob = double{in.log_probs[r]};
    const double old = in.old_log_probs.empty() ? log_prob : double{in.old_log_probs[r]};
    const double ratio = std::exp(std::min(60.0, std::fabs(log_prob - old)));
    const double advantage = in.advantages.empty() ? 1 : std::fabs(double{in.advantages[r]});
    const double d = in.ref_log_probs.empty()
                         ? 0
                         : std::min(60.0, std::fabs(log_prob - double{in.ref_log_probs[r]}));
    const double scale = double{in.weights[r]} * ratio *
                         (advantage + double{o.kl_coef} * (o.use_kl ? std::exp(d) : 0));
    scales.push_back(1e-3 + (std::isfinite(scale) ? scale : 0));
  }
  return scales;
}

void check(Inputs in, const ops::PolicyLossOptions& options, bool with_dentropies,
           const char* where) {
  const Outputs want = run_cpu(in, options, with_dentropies);
  const Outputs got = run_device(in, options, with_dentropies);
  const Outputs again = run_device(in, options, with_dentropies);
  // The last bits of exp and expm1 differ between host and device libraries. Metrics are sums of
  // f32 terms in double.
  compare("dlog_probs", where, got.dlog_probs, want.dlog_probs, derivative_scales(in, options),
          3e-6);
  compare("dentropies", where, got.dentropies, want.dentropies, {0}, 1e-6);
  compare("metrics", where, got.metrics, want.metrics, {1e-2}, 3e-6);
  if (std::memcmp(got.dlog_probs.data(), again.dlog_probs.data(), got.dlog_probs.size() * 4) != 0 ||
      std::memcmp(got.metrics.data(), again.metrics.data(), got.metrics.size() * 8) != 0) {
    ++failures;
    std::printf("FAIL %s: two runs differ\n", where);
  }
}

void check_options(const std::vector<int32_t>& lengths, Values values, uint32_t seed) {
  const Inputs full = make_inputs(lengths, values, seed);
  constexpr const char* kValues[] = {"usual", "far", "broken"};
  int run = 0;
  for (int kind = 0; kind < 4; ++kind) {
    for (int tis = 0; tis < 3; ++tis) {
      for (int kl = -1; kl < 8; ++kl) {
        for (const float dual_clip : {0.0f, 1.5f}) {
          ops::PolicyLossOptions o;
          o.kind = static_cast<ops::LossKind>(kind);
          o.tis = static_cast<ops::TisMode>(tis);
          o.tis_clip_low = tis == 2 ? 0.5f : 0.0f;
          o.eps_clip_high = 0.28f;
          o.eps_clip_c = dual_clip;
          o.use_kl = kl >= 0;
          o.kl_kind = static_cast<ops::KlKind>(std::max(kl, 0) % 4);
          o.unbiased_kl = kl >= 4;
          o.kl_coef = 0.03f;
          Inputs in = full;
          ++run;
          o.compare_masked = run % 5 < 3;
          const bool with_entropy = run % 3 != 0;
          o.entropy_coef = with_entropy ? 0.01f : 0.0f;
          if (!with_entropy) in.entropies.clear();
          if (run % 4 == 0) in.old_log_probs.clear();
          if (!o.use_kl) in.ref_log_probs.clear();
          if (tis == 0 && run % 2 == 0) in.rollout_log_probs.clear();
          if (kind == 3) in.advantages.clear();
          char where[160];
          std::snprintf(where, sizeof(where),
                        "kind %d tis %d kl %d dual clip %.1f, %zu rows, %s values, seed %u", kind,
                        tis, kl, static_cast<double>(dual_clip), in.log_probs.size(),
                        kValues[static_cast<int>(values)], seed);
          check(in, o, with_entropy, where);
        }
      }
    }
  }
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  if (read_check_size(argc, argv) != CheckSize::kAll) {
    check_options({40, 0, 300}, Values::kBroken, 6);
    std::printf("policy_loss_check: %d mismatches\n", failures);
    return failures == 0 ? 0 : 1;
  }
  check_options({1}, Values::kUsual, 1);
  check_options({5, 1, 300, 6, 77}, Values::kUsual, 2);
  check_options({513, 2000, 1}, Values::kUsual, 3);
  check_options({40, 0, 700}, Values::kFar, 4);
  check_options({64, 600}, Values::kBroken, 5);
  std::printf("policy_loss_check: %d mismatches\n", failures);
  return failures == 0 ? 0 : 1;
}
