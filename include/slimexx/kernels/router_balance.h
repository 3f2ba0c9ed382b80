// The loads of a router's experts on Hopper (ops/router_balance.h has the formulas). Pointers are
// device pointers to arrays without gaps. Nothing is allocated, nothing synchronises. Only integer
// atomics are used, so the same call has the same bits every time.
//
// Every function queues its work on `stream` and returns null, or the fault as a static text.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"
#include "slimexx/kernels/router_sums.h"

namespace slimexx::kernels {

struct ChoiceCountArgs {
  const int32_t* ids = nullptr;         // [tokens, top_k]
  const int32_t* cu_seqlens = nullptr;  // [sequences + 1], ends at `tokens`
  float* counts = nullptr;              // [sequences, experts]
  int64_t* sums = nullptr;              // [count_router_sums(experts)]; adds to the loads
  int64_t tokens = 0, sequences = 0, experts = 0, top_k = 0;
};
[[nodiscard]] const char* count_choices(const ChoiceCountArgs& args, cudaStream_t stream);

struct RouterBalanceArgs {
  const float* logits = nullptr;        // [tokens, experts]
  const int32_t* cu_seqlens = nullptr;  // [sequences + 1], ends at `tokens`
  const int32_t* lengths = nullptr;     // [sequences]: tokens of the whole sequences
  const float* counts = nullptr;        // [sequences, experts], over the whole sequences
  int64_t* sums = nullptr;              // [count_router_sums(experts)]; adds to all but the loads
  float* dlogits = nullptr;             // [tokens, experts], added to
  int64_t tokens = 0, sequences = 0, experts = 0, top_k = 0;
  bool sigmoid = false;  // false: softmax
  RouterBalanceRule rule = {};
};
[[nodiscard]] const char* balance_router(const RouterBalanceArgs& args, cudaStream_t stream);

// bias [experts] += rate for experts with loads [experts] below the mean, -= rate if above.
[[nodiscard]] const char* move_router_bias(float* bias, const int64_t* loads, int64_t experts,
                                           float rate, cudaStream_t stream);

}  // namespace slimexx::kernels
