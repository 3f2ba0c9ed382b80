#include "slimexx/rollout/options.h"

namespace slimexx::rollout {
namespace {

using config::Binder;

constexpr double kMaxInt32 = 2147483647;
constexpr double kMaxSize = 1 << 20;  // ranks in a group
constexpr double kMaxGib = 1e6;
constexpr int64_t kMostDrafts = 63;

void bind_engine(Binder& b, EngineKeys& o) {
  b.field("page_size", o.page_size,
          {.unit = "tokens",
           .doc = "Tokens per page of the KV cache.",
           .min = 1,
           .max = 4096,
           .slime = "sglang-page-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("max_running_requests", o.max_running_requests,
          {.unit = "samples",
           .doc = "Maximum number of samples that an engine decodes at once, split evenly over its "
                  "dp_size attention groups.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "sglang-max-running-requests",
           .when = "an engine runs",
           .may_idle = true});
  b.field("chunked_prefill_size", o.chunked_prefill_size,
          {.unit = "tokens",
           .doc = "Maximum number of tokens in one forward pass of the engine, prefill and decode "
                  "together, split evenly over its dp_size attention groups.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "sglang-chunked-prefill-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("max_total_tokens", o.max_total_tokens,
          {.unit = "tokens",
           .doc = "Capacity of the KV cache of each attention group; 0: what fits in kv_cache_gib.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "sglang-max-total-tokens",
           .when = "an engine runs",
           .may_idle = true});
  b.field("kv_cache_gib", o.kv_cache_gib,
          {.unit = "GiB",
           .doc = "Memory for the KV cache per rank. Unset: 1 on the CPU; on a GPU, what is left "
                  "of mem_fraction_static.",
           .min = 0,
           .max = kMaxGib,
           .min_exclusive = true,
           .slime = "-",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "kv_cache_dtype", o.kv_cache_dtype,
      {.doc = "Data type of the KV cache. auto: the type of the computation. fp8_e4m3: FP8 with a "
              "scale for each key head of a token (in latent attention, for 128 elements), half "
              "the bytes; training rounds its keys and values in the same way, so that "
              "log-probs stay equal.",
       .choices = {"auto", "fp8_e4m3"},
       .slime = "sglang-kv-cache-dtype"});
  b.field("disable_radix_cache", o.disable_radix_cache,
          {.doc = "Turn off the prefix cache, which shares the KV pages of common prefixes.",
           .slime = "sglang-disable-radix-cache",
           .when = "an engine runs",
           .may_idle = true});
  b.field("mem_fraction_static", o.mem_fraction_static,
          {.doc = "Fraction of a GPU's memory that the program may use. Weights, gradients and "
                  "optimizer state come first; the rest holds the KV cache while generating and "
                  "activations while training. No effect on the CPU.",
           .min = 0,
           .max = 1,
           .min_exclusive = true,
           .slime = "sglang-mem-fraction-static"});
}

// The sizes that make_engine_shape checks together.
void bind_engine_ranks(Binder& b, EngineKeys& o) {
  b.field(
      "rollout_num_gpus_per_engine", o.rollout_num_gpus_per_engine,
      {.unit = "ranks",
       .doc =
           "Ranks per engine (consecutive). Divided by dp_size: the tensor parallelism of "
           "attention. It must be 1 or equal that of training; if training has 1, any value fits.",
       .min = 1,
       .max = kMaxSize,
       .when = "an engine runs",
       .may_idle = true});
  b.field("enable_dp_attention", o.enable_dp_attention,
          {.doc = "Data-parallel attention: an engine's ranks form dp_size groups, each with its "
                  "own requests and KV cache.",
           .slime = "sglang-enable-dp-attention",
           .when = "an engine runs",
           .may_idle = true});
  b.field("dp_size", o.dp_size,
          {.doc = "Attention groups per engine; more than 1 needs enable_dp_attention.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-dp-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "ep_size", o.ep_size,
      {.doc = "Expert parallelism: each ep_size consecutive ranks of an engine hold all experts. "
              "Must divide rollout_num_gpus_per_engine, but need not divide the number of experts.",
       .min = 1,
       .max = kMaxSize,
       .slime = "sglang-ep-size",
       .when = "an engine runs",
       .may_idle = true});
  b.field("ep_num_redundant_experts", o.ep_num_redundant_experts,
          {.doc = "Redundant experts per ep_size ranks: further copies of the experts, from the "
                  "first expert on. Ranks are spread evenly over the copies of an expert.",
           .min = 0,
           .max = kMaxSize,
           .slime = "sglang-ep-num-redundant-experts",
           .when = "an engine runs",
           .may_idle = true});
  b.field("moe_dense_tp_size", o.moe_dense_tp_size,
          {.doc = "Tensor parallelism of dense layers and shared experts: that of attention (the "
                  "default), or 1, which replicates them on every rank.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-moe-dense-tp-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("enable_dp_lm_head", o.enable_dp_lm_head,
          {.doc = "Split the embedding and the LM head over the ranks of one attention group. The "
                  "engine always does this; true is accepted only with enable_dp_attention.",
           .slime = "sglang-enable-dp-lm-head",
           .when = "an engine runs",
           .may_idle = true});
}

void bind_speculation(Binder& b, EngineKeys& o) {
  b.field("speculative_algorithm", o.speculative_algorithm,
          {.doc = "Speculative decoding: free rows of a batch verify draft tokens; the sampled "
                  "tokens do not change. EAGLE (or NEXTN): the checkpoint's first multi-token "
                  "prediction layer drafts. NGRAM: drafts are the tokens that followed the same "
                  "n-gram elsewhere in the sample or its group.",
           .choices = {"none", "EAGLE", "NEXTN", "NGRAM"},
           .slime = "sglang-speculative-algorithm",
           .when = "an engine runs",
           .may_idle = true});
  b.field("speculative_num_steps", o.speculative_num_steps,
          {.unit = "tokens",
           .doc = "Number of tokens that the MTP layer drafts one after another (EAGLE). Default: "
                  "speculative_num_draft_tokens "
                  "- 1, or 3 if that is unset.",
           .min = 1,
           .max = kMostDrafts,
           .slime = "sglang-speculative-num-steps",
           .when = "EAGLE, NEXTN"});
  b.field("speculative_eagle_topk", o.speculative_eagle_topk,
          {.doc = "Drafts per position; only 1 is supported.",
           .min = 1,
           .max = kMostDrafts,
           .slime = "sglang-speculative-eagle-topk",
           .when = "EAGLE, NEXTN"});
  b.field("speculative_num_draft_tokens", o.speculative_num_draft_tokens,
          {.unit = "tokens",
           .doc = "Maximum number of tokens that a step computes for a sample: its last token and "
                  "the drafts. Default: speculative_num_steps + 1, or 4 if that is unset.",
           .min = 2,
           .max = kMostDrafts + 1,
           .slime = "sglang-speculative-num-draft-tokens",
           .when = "speculative_algorithm"});
  b.field("speculative_gate", o.speculative_gate,
          {.doc = "Draft fewer tokens, or none, if too few drafts are accepted to pay for their "
                  "verification.",
           .slime = "-",
           .when = "speculative_algorithm",
           .may_idle = true});
}

}  // namespace

void bind(Binder& b, EngineKeys& o) {
  bind_engine(b, o);
  bind_engine_ranks(b, o);
  bind_speculation(b, o);
}

}  // namespace slimexx::rollout
