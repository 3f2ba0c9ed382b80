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
           .doc = "Tokens of one page of the KV cache.",
           .min = 1,
           .max = 4096,
           .slime = "sglang-page-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("max_running_requests", o.max_running_requests,
          {.unit = "samples",
           .doc = "Samples that an engine decodes at once; each of dp_size groups an even share.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "sglang-max-running-requests",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "chunked_prefill_size", o.chunked_prefill_size,
      {.unit = "tokens",
       .doc = "Tokens of one forward of the engine, decode and prefill together; each of dp_size "
              "groups an even share.",
       .min = 1,
       .max = kMaxInt32,
       .slime = "sglang-chunked-prefill-size",
       .when = "an engine runs",
       .may_idle = true});
  b.field(
      "max_total_tokens", o.max_total_tokens,
      {.unit = "tokens",
       .doc =
           "Capacity of the KV cache of an engine's attention group; 0: what kv_cache_gib holds.",
       .min = 0,
       .max = kMaxInt32,
       .slime = "sglang-max-total-tokens",
       .when = "an engine runs",
       .may_idle = true});
  b.field("kv_cache_gib", o.kv_cache_gib,
          {.unit = "GiB",
           .doc = "Memory of a rank's keys and values. Left out: 1 on the CPU; on a GPU what "
                  "is left of mem_fraction_static.",
           .min = 0,
           .max = kMaxGib,
           .min_exclusive = true,
           .slime = "-",
           .when = "an engine runs",
           .may_idle = true});
  b.field("disable_radix_cache", o.disable_radix_cache,
          {.doc = "Do not share the keys and values of common prefixes.",
           .slime = "sglang-disable-radix-cache",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "mem_fraction_static", o.mem_fraction_static,
      {.doc = "Share of a GPU's memory that the program may take: weights, gradients, optimizer, "
              "and what is left for keys, values and activations, which take turns in it. No "
              "effect on the CPU.",
       .min = 0,
       .max = 1,
       .min_exclusive = true,
       .slime = "sglang-mem-fraction-static"});
}

// The sizes that make_engine_shape checks together.
void bind_engine_ranks(Binder& b, EngineKeys& o) {
  b.field("rollout_num_gpus_per_engine", o.rollout_num_gpus_per_engine,
          {.unit = "ranks",
           .doc = "Consecutive ranks of one engine. Divided by dp_size they are attention's tensor "
                  "parallelism, which is training's, or 1, or any where training's is 1.",
           .min = 1,
           .max = kMaxSize,
           .when = "an engine runs",
           .may_idle = true});
  b.field("enable_dp_attention", o.enable_dp_attention,
          {.doc = "Data-parallel attention: an engine's ranks form dp_size groups, each with "
                  "requests and keys and values of its own.",
           .slime = "sglang-enable-dp-attention",
           .when = "an engine runs",
           .may_idle = true});
  b.field("dp_size", o.dp_size,
          {.doc = "Attention groups of an engine; more than 1 needs enable_dp_attention.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-dp-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("ep_size", o.ep_size,
          {.doc = "Expert parallelism: every so many ranks of an engine hold all the experts. It "
                  "divides rollout_num_gpus_per_engine; experts need not divide by it.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-ep-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("ep_num_redundant_experts", o.ep_num_redundant_experts,
          {.doc = "Experts that ep_size ranks keep once more, from the first one on; ranks take "
                  "turns in which copy they use.",
           .min = 0,
           .max = kMaxSize,
           .slime = "sglang-ep-num-redundant-experts",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "moe_dense_tp_size", o.moe_dense_tp_size,
      {.doc = "Tensor parallelism of dense layers and shared experts: attention's, which is the "
              "default, or 1, where every rank has all of them.",
       .min = 1,
       .max = kMaxSize,
       .slime = "sglang-moe-dense-tp-size",
       .when = "an engine runs",
       .may_idle = true});
  b.field("enable_dp_lm_head", o.enable_dp_lm_head,
          {.doc = "Embedding and head split over the ranks of one attention group, as they always "
                  "are; wants enable_dp_attention.",
           .slime = "sglang-enable-dp-lm-head",
           .when = "an engine runs",
           .may_idle = true});
}

void bind_speculation(Binder& b, EngineKeys& o) {
  b.field("speculative_algorithm", o.speculative_algorithm,
          {.doc = "Speculative decoding: tokens are guessed and checked in rows that a batch has "
                  "free, which changes no token. EAGLE (or NEXTN): by the checkpoint's first "
                  "multi-token prediction layer. NGRAM: by what followed the last tokens "
                  "elsewhere in the sample or its group.",
           .choices = {"none", "EAGLE", "NEXTN", "NGRAM"},
           .slime = "sglang-speculative-algorithm",
           .when = "an engine runs",
           .may_idle = true});
  b.field("speculative_num_steps", o.speculative_num_steps,
          {.unit = "tokens",
           .doc = "Tokens that the layer guesses one behind another. Default: 3, or one less than "
                  "speculative_num_draft_tokens.",
           .min = 1,
           .max = kMostDrafts,
           .slime = "sglang-speculative-num-steps",
           .when = "EAGLE, NEXTN"});
  b.field("speculative_eagle_topk", o.speculative_eagle_topk,
          {.doc = "Guesses at each place; 1 is all there is.",
           .min = 1,
           .max = kMostDrafts,
           .slime = "sglang-speculative-eagle-topk",
           .when = "EAGLE, NEXTN"});
  b.field("speculative_num_draft_tokens", o.speculative_num_draft_tokens,
          {.unit = "tokens",
           .doc = "Tokens of a sample that a step computes at most: its last one, and guesses. "
                  "Default: 4, or one more than speculative_num_steps.",
           .min = 2,
           .max = kMostDrafts + 1,
           .slime = "sglang-speculative-num-draft-tokens",
           .when = "speculative_algorithm"});
  b.field(
      "speculative_gate", o.speculative_gate,
      {.doc = "Guess fewer tokens, or none, where too few guesses are right to pay for what the "
              "rows that check them read.",
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
