#include "rollout/scheduling/admission.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <string>

#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

void check_at_least_one(const char* name, int64_t value) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (value < 1 || value > kMost)
    throw Error(ErrorCode::kUsage, fmt::format("{} is {}", name, value),
                fmt::format("use a number from 1 to {}", kMost));
}

std::string find_fault(const SamplingParams& sampling) {
  if (!(sampling.temperature > 0) || !std::isfinite(sampling.temperature))
    return fmt::format("temperature {} is not above 0", sampling.temperature);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return fmt::format("top_p {} is not in (0, 1]", sampling.top_p);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    return fmt::format("min_p {} is not in [0, 1]", sampling.min_p);
  if (sampling.top_k < -1) return fmt::format("top_k {} is below -1", sampling.top_k);
  if (sampling.max_new_tokens < 1)
    return fmt::format("max_new_tokens {} is below 1", sampling.max_new_tokens);
  for (const std::string& stop : sampling.stop)
    if (stop.empty()) return "a stop string is empty";
  return "";
}

std::string find_fault(const Request& request, int64_t max_sequence_tokens, int64_t vocab_size,
                       bool has_token_bytes) {
  if (!request.prompt || request.prompt->empty()) return "the prompt is empty";
  const auto length = static_cast<int64_t>(request.prompt->size());
  if (length >= max_sequence_tokens)
    return fmt::format("a prompt of {} tokens leaves no room for a response within {} tokens",
                       length, max_sequence_tokens);
  for (size_t i = 0; i < request.prompt->size(); ++i) {
    const TokenId token = (*request.prompt)[i];
    if (token < 0 || token >= vocab_size)
      return fmt::format("token {} of the prompt is {}, outside the vocabulary of {}", i, token,
                         vocab_size);
  }
  if (!request.sampling.stop.empty() && !has_token_bytes)
    return "stop strings need a tokenizer, but the checkpoint has none";
  return find_fault(request.sampling);
}

}  // namespace

void check_options(const EngineOptions& options, int64_t max_positions, tensor::Device device) {
  check_at_least_one("page_tokens", options.page_tokens);
  if (options.num_draft_tokens < 0)
    throw Error(ErrorCode::kUsage,
                fmt::format("num_draft_tokens is {}, below 0", options.num_draft_tokens),
                "use 0, or the number of tokens to draft per step");
  if (!device.is_cpu() &&
      (options.page_tokens < 16 || (options.page_tokens & (options.page_tokens - 1)) != 0))
    throw Error(ErrorCode::kUsage,
                fmt::format("pages of {} tokens: attention on {} supports powers of two from 16",
                            options.page_tokens, tensor::to_string(device)),
                "set rollout.page_size to 16");
  check_at_least_one("max_running_requests", options.max_running_requests);
  check_at_least_one("chunked_prefill_size", options.chunked_prefill_size);
  if (options.max_total_tokens < 0)
    throw Error(ErrorCode::kUsage,
                fmt::format("max_total_tokens is {}, below 0", options.max_total_tokens),
                "use 0 to take the size from kv_cache_gib, or a number of tokens");
  if (options.kv_cache_gib && !(*options.kv_cache_gib > 0))
    throw Error(ErrorCode::kUsage,
                fmt::format("kv_cache_gib is {}, not above 0", *options.kv_cache_gib),
                "use a positive number, or leave it out");
  if (options.max_sequence_tokens < 0 || options.max_sequence_tokens > max_positions)
    throw Error(ErrorCode::kUsage,
                fmt::format("sequences of {} tokens exceed the {} positions of the model",
                            options.max_sequence_tokens, max_positions),
                "lower the prompt and response lengths");
  const int64_t longest =
      options.max_sequence_tokens > 0 ? options.max_sequence_tokens : max_positions;
  if (longest < 2)
    throw Error(ErrorCode::kUsage,
                fmt::format("sequences of {} tokens have no room for a response", longest),
                "allow at least 2 tokens");
}

void check_request(const Request& request, int64_t max_sequence_tokens, int64_t vocab_size,
                   bool has_token_bytes) {
  const std::string fault = find_fault(request, max_sequence_tokens, vocab_size, has_token_bytes);
  if (!fault.empty())
    throw Error(ErrorCode::kRun, fmt::format("request {}: {}", request.id, fault));
}

}  // namespace slimexx::rollout
