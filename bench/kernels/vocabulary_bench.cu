// Times the vocabulary kernels, the token losses and a device copy in the same run.
//   vocabulary_bench          per kernel and shape: microseconds, GB/s for the bytes that must
//                             move, share of the copy's GB/s. Peers: bench/peers/vocabulary.py.
// Calls are captured in a graph and use successive rows of a large array, so that L2 is cold for
// small shapes too.
#include <cuda_bf16.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/kernels/replay.h"
#include "slimexx/kernels/policy_loss.h"
#include "slimexx/kernels/vocabulary.h"
#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kColumns = 151936, kRows = 1024;

__global__ void fill_logits(float* out, int64_t n, float spread, int spikes) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + 12345;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    const float u = (static_cast<float>(x & 0xffffff) + 0.5f) * 0x1p-24f;
    const float v = static_cast<float>(x >> 40) * 0x1p-24f;
    const float normal = sqrtf(-2 * logf(u)) * cospif(2 * v);
    const bool spike = static_cast<int>(i % kColumns * 7919 % kColumns) < spikes;
    out[i] = spread * normal + (spike ? 20.0f : 0.0f);
  }
}

__global__ void copy_rows(float4* out, const float4* in, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} * 2 + threadIdx.x, j = i + blockDim.x;
  if (j >= n) return;
  const float4 a = in[i], b = in[j];
  out[i] = a;
  out[j] = b;
}

// Microseconds per call: the median of seven replays of a graph of `calls` calls.
double time_calls(int calls, const Launch& launch) {
  Replay replay(calls, launch);
  replay.time(1);
  std::vector<double> us(7);
  for (double& v : us) v = replay.time(1);
  std::sort(us.begin(), us.end());
  return us[3];
}

struct Bench {
  DeviceArray<float> logits{kRows * kColumns};
  DeviceArray<__nv_bfloat16> gradients{kRows * kColumns};
  DeviceArray<float> lse{kRows}, log_probs{kRows}, entropies{kRows};
  DeviceArray<int32_t> targets{kRows}, tokens{kRows};
  DeviceArray<uint8_t> workspace{static_cast<int64_t>(std::max(
      gather_log_probs_workspace(kRows, kColumns), sample_tokens_workspace(kRows, kColumns)))};
  DeviceArray<SamplingParameters> parameters{kRows};
  double copy_rate = 1;

  void fill(float spread, int spikes) {
    fill_logits<<<2048, 256>>>(logits.data(), logits.count(), spread, spikes);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  LogitRows rows(int64_t first, int64_t count) const {
    return {logits.data() + first * kColumns, kColumns, count, kColumns};
  }
  void print(const std::string& name, double us, double bytes) const {
    const double rate = bytes / us * 1e-3;
    std::printf("%-44s %9.2f us %6.0f GB/s %5.1f %%\n", name.c_str(), us, rate,
                100 * rate / copy_rate);
  }
};

void run_passes(Bench& b) {
  const double elements = static_cast<double>(kRows * kColumns);
  {
    DeviceArray<float> copy(kRows * kColumns);
    const int64_t n = copy.count() / 4;
    const double us = time_calls(4, [&](int, cudaStream_t s) {
      copy_rows<<<static_cast<unsigned>((n / 2 + 255) / 256), 256, 0, s>>>(
          reinterpret_cast<float4*>(copy.data()), reinterpret_cast<const float4*>(b.logits.data()),
          n);
    });
    b.copy_rate = elements * 8 / us * 1e-3;
    b.print("copy [1024, 151936] f32", us, elements * 8);
  }
  const LogitRows all = b.rows(0, kRows);
  const auto normalize = [&](float temperature) {
    return time_calls(4, [&, temperature](int, cudaStream_t s) {
      SLX_CUDA(normalize_logits(all, b.lse.data(), nullptr, temperature, b.workspace.data(), s));
    });
  };
  b.print("normalize_logits, temperature 1", normalize(1.0f), elements * 4);
  b.print("normalize_logits, temperature 0.999", normalize(0.999f), elements * 8);
  b.fill(2.5f, 10);
  const auto gather = [&](float* entropies) {
    return time_calls(4, [&, entropies](int, cudaStream_t s) {
      SLX_CUDA(gather_log_probs(b.log_probs.data(), entropies, all, b.lse.data(), b.targets.data(),
                                b.workspace.data(), s));
    });
  };
  b.print("gather_log_probs with entropies", gather(b.entropies.data()), elements * 4);
  b.print("gather_log_probs", gather(nullptr), static_cast<double>(kRows) * 16);
  for (const bool entropy : {false, true}) {
    const double us = time_calls(4, [&](int, cudaStream_t s) {
      SLX_CUDA(log_probs_backward(b.gradients.data(), kColumns, all, b.lse.data(), b.targets.data(),
                                  entropy ? b.entropies.data() : nullptr, b.log_probs.data(),
                                  entropy ? b.entropies.data() : nullptr, 1.0f, s));
    });
    b.print(entropy ? "log_probs_backward, both" : "log_probs_backward", us, elements * 6);
  }
}

void run_sampling(Bench& b, const char* logits_name) {
  struct Setting {
    const char* name;
    SamplingParameters parameters;
  };
  std::vector<Setting> settings(7);
  settings[0].name = "temperature 1";
  settings[1].name = "temperature 0.8";
  settings[1].parameters.temperature = 0.8f;
  settings[2].name = "greedy";
  settings[2].parameters.greedy = 1;
  settings[3].name = "top_p 0.95";
  settings[3].parameters.top_p = 0.95f;
  settings[4].name = "top_k 50, top_p 0.95";
  settings[4].parameters.top_k = 50;
  settings[4].parameters.top_p = 0.95f;
  settings[5].name = "min_p 0.05";
  settings[5].parameters.min_p = 0.05f;
  settings[6].name = "top_k 5000";
  settings[6].parameters.top_k = 5000;
  for (const Setting& setting : settings) {
    std::vector<SamplingParameters> host(kRows, setting.parameters);
    for (size_t r = 0; r < host.size(); ++r) host[r].seed = r + 1;
    SLX_CUDA(cudaMemcpy(b.parameters.data(), host.data(), host.size() * sizeof(host[0]),
                        cudaMemcpyHostToDevice));
    for (const int64_t rows : {1, 8, 32, 64, 256, 1024}) {
      const int calls = rows == 1024 ? 4 : static_cast<int>(std::min<int64_t>(64, kRows / rows));
      const double us = time_calls(calls, [&](int i, cudaStream_t s) {
        SLX_CUDA(sample_tokens(b.tokens.data(), b.log_probs.data(), b.rows(i * rows % kRows, rows),
                               b.parameters.data(), 0, b.workspace.data(), s));
      });
      b.print("sample " + std::to_string(rows) + ", " + setting.name + ", " + logits_name, us,
              static_cast<double>(rows * kColumns) * 4);
    }
  }
}

void run_losses(Bench& b) {
  for (const int64_t rows : {8192, 131072}) {
    DeviceArray<float> values(10 * rows);
    values.set_bytes(0x3c);  // 0.0115 each
    DeviceArray<double> metrics(16);
    metrics.set_bytes(0);
    const int64_t sequences = rows / 1024;
    std::vector<int32_t> cu_rows;
    for (int64_t s = 0; s <= sequences; ++s) cu_rows.push_back(static_cast<int32_t>(s * 1024));
    DeviceArray<int32_t> device_cu_rows(sequences + 1);
    SLX_CUDA(cudaMemcpy(device_cu_rows.data(), cu_rows.data(), cu_rows.size() * 4,
                        cudaMemcpyHostToDevice));
    PolicyLossArgs args;
    const float** inputs[] = {
        &args.log_probs,         &args.entropies,  &args.old_log_probs, &args.ref_log_probs,
        &args.rollout_log_probs, &args.advantages, &args.mask,          &args.weights};
    for (size_t i = 0; i < std::size(inputs); ++i) {
      *inputs[i] = values.data() + static_cast<int64_t>(i) * rows;
    }
    args.dlog_probs = values.data() + 8 * rows;
    args.dentropies = values.data() + 9 * rows;
    args.rows = rows;
    args.sequences = sequences;
    args.cu_rows = device_cu_rows.data();
    args.metrics = metrics.data();
    args.options.use_kl = true;
    args.options.kl_kind = KlKind::kLowVar;
    args.options.tis = TisMode::kTruncate;
    DeviceArray<uint8_t> workspace(static_cast<int64_t>(policy_loss_workspace(rows, sequences)));
    for (const LossKind kind : {LossKind::kClip, LossKind::kGspo}) {
      args.options.kind = kind;
      const double us = time_calls(
          50, [&](int, cudaStream_t s) { SLX_CUDA(policy_loss(args, workspace.data(), s)); });
      b.print("policy_loss kind " + std::to_string(static_cast<int>(kind)) + ", rows " +
                  std::to_string(rows),
              us, static_cast<double>(rows) * 40);
    }
  }
}

void run_all() {
  Bench b;
  b.targets.set_bytes(0);
  b.fill(2.5f, 10);
  run_passes(b);
  b.fill(2.5f, 10);
  run_sampling(b, "spiked");
  b.fill(1.0f, 0);
  run_sampling(b, "flat");
  run_losses(b);
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main() { slimexx::kernels::testing::run_all(); }
