// The rollout engine: continuous batching over a paged KV cache. One engine is driven by one
// thread: submit requests, call step() until nothing is left. Its scheduler is a pure function of
// the calls it got.
//
// An engine of several ranks has one Engine a rank. Tensor-parallel ranks (groups.tp) hold a shard
// of every layer and of its keys and values; they get the same calls, do the same and return the
// same. Where experts are split over more ranks than those (groups.ep), the tp groups have requests
// of their own (data-parallel attention), and all these ranks call step() together, also those with
// nothing to compute: see runs_in_lock_step().
//
// The host works while the device does: step() launches a step before it looks at what the one
// before sampled. The launched step takes tokens that the host has not seen from the device's
// memory. A sequence that turns out to have ended has computed one token for nothing; it is dropped
// and leaves no trace.
//
// What a request generates depends on the weights, its prompt, its sampling parameters and its
// RandomName alone: not on the batch, chunking, prefix sharing, preemption or the size of the cache
// (numerics contract, E1 and E2).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slimexx/model/decoder.h"

namespace slimexx::config {
class Binder;
}

namespace slimexx::rollout {

using TokenId = int32_t;

inline constexpr double kDefaultMemFraction = 0.9;

struct EngineOptions {
  int64_t page_tokens = 16;
  int64_t max_running_requests = 256;   // sequences in one batch
  int64_t chunked_prefill_size = 2048;  // tokens of one forward, decode and prefill together
  bool enable_prefix_cache = true;
  // Capacity of the KV cache: max_total_tokens, or if that is 0 kv_cache_gib, or if that is absent
  // 1 GiB on the CPU, and on a GPU what is left of mem_fraction_static of its memory.
  int64_t max_total_tokens = 0;
  std::optional<double> kv_cache_gib = {};
  double mem_fraction_static = kDefaultMemFraction;
  int64_t max_sequence_tokens = 0;  // prompt and response together; 0: the model's max_positions
  // Speculative decoding: so many tokens of a sequence at most are guessed for a step and checked
  // in it, in rows that the batch has free. They change when a request is done, not what it
  // generates.
  int64_t num_draft_tokens = 0;
  // Guesses are of the model's first MTP layer, which computes every token that the model does, and
  // is asked again for each further guess. Else tokens are looked up in the samples of the group.
  bool drafts_by_mtp = false;
  // Fewer are guessed where too many are wrong to pay for the weights that their rows read.
  bool gates_drafts = true;
  // On a GPU, decode steps as graphs where they can be: see Engine::records_steps. Not where
  // threads share the device's streams: a recording would have what others queue.
  bool records_steps = true;
};

struct SamplingParams {
  float temperature = 1.0f;  // > 0; what the log-probs are taken at
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0 or -1: off
  float min_p = 0.0f;
  bool greedy = false;
  int64_t max_new_tokens = 16;
  std::vector<TokenId> stop_token_ids;  // the stop token is part of the response
  std::vector<std::string> stop;        // a response ends with the token that completes one of them
};

// Names a sample for its random numbers (N8). When it is generated is no part of the name: a sample
// that is resumed later, or generated after a group that was dropped, draws the same numbers.
struct RandomName {
  uint64_t seed = 0;    // run seed (evaluation mixes in its own)
  uint64_t group = 0;   // number of the sample's group, counted over the whole run
  uint32_t sample = 0;  // of the group
};

struct Request {
  int64_t id = 0;  // the caller's; unique among those in flight
  std::shared_ptr<const std::vector<TokenId>> prompt;
  SamplingParams sampling;
  RandomName name;
};

enum class FinishReason : uint8_t { kStop, kLength, kAbort };

struct Completion {
  int64_t id = 0;
  std::vector<TokenId> tokens;   // the response, stop token included
  std::vector<float> log_probs;  // one per token, at the sampling temperature, before truncation
  FinishReason finish = FinishReason::kStop;
  int64_t cached_tokens = 0;  // prompt tokens whose keys and values were found in the cache
  int64_t num_preemptions = 0;
};

struct EngineStats {  // since construction or reset_stats()
  int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0,
          recomputed_tokens = 0;
  int64_t dropped_tokens = 0;  // sampled behind a stop that was not known yet
  // Guessed and checked; of these, those that were right; times that a sequence's were checked.
  int64_t draft_tokens = 0, accepted_tokens = 0, verifications = 0;
  int64_t partial_chunks = 0;  // shares of a step that did not end their prompt
  int64_t max_batch_tokens = 0, max_running = 0, peak_pages = 0, num_pages = 0;
  int64_t step_ns = 0, wait_ns = 0;  // time within step(); of that, waiting for the device
};

// Raw bytes of a token, for stop strings; the caller's tokenizer.
using TokenBytes = std::function<const std::string&(TokenId)>;

// What an engine takes on its device, known before it is made: workspace_bytes, and page_bytes for
// each page of keys and values.
struct EngineMemory {
  // Staged batches, the activations and logits of a step, and what the driver keeps of recorded
  // steps.
  int64_t workspace_bytes = 0;
  int64_t page_bytes = 0;     // page_tokens tokens over all layers
  int64_t padding_bytes = 0;  // between layers, at most
  int64_t min_pages = 0;      // one sequence of the greatest length
  int64_t max_pages = 0;      // what the options ask for, or what more would not serve
  int64_t min_cache_bytes() const { return min_pages * page_bytes + padding_bytes; }
  int64_t max_cache_bytes() const { return max_pages * page_bytes + padding_bytes; }
};
// Arguments as Engine's; of the options the size of the cache has no influence. Allocates nothing
// on the device. Throws what Engine throws for options that cannot be served. max_pages is what
// max_total_tokens or kv_cache_gib say, where they are given.
EngineMemory plan_engine_memory(const model::Decoder& decoder,
                                const model::ModelParameters& weights, tensor::Device device,
                                const EngineOptions& options, int64_t num_sampled_tokens,
                                const dist::Groups& groups = dist::groups_of_one());

// Up to so many rows of a step every tensor-parallel rank has whole; more are split over the ranks
// (model/batch.h). 0: of one rank, or of a model with routed experts.
int64_t most_repeated_rows(const model::ModelSpec& spec, int tp_ranks);

class Engine {
 public:
  // `weights` are read in place (no copy) and must outlive the engine. `num_sampled_tokens`: ids at
  // or above it are never sampled (the tokenizer's size where the vocabulary is padded; 0: all).
  // Plans and takes all memory here; Error(kUsage) if the cache cannot hold one sequence of max
  // length. `cache_memory` [bytes] U8, where defined, is where keys and values lie: its owner may
  // use it while no request is in flight, calls on_weights_updated() after that, and keeps it until
  // the engine is gone. Decoder and weights are this rank's shard over the tp and ep ranks of
  // `groups`, which are borrowed and of this device. Ranks of an engine have the same options.
  Engine(const model::Decoder& decoder, const model::ModelParameters& weights,
         tensor::Device device, const EngineOptions& options, TokenBytes token_bytes,
         int64_t num_sampled_tokens, tensor::Tensor cache_memory = {},
         const dist::Groups& groups = dist::groups_of_one());
  ~Engine();
  // Whether decode steps run as graphs (tensor/graph.h): on a GPU, unless the options say no, or
  // experts are split over ranks that do not reach each other's memory (dist/peer_memory.h). Then
  // the host waits in every layer for the number of rows to come.
  bool records_steps() const;
  // Before the groups go, and before anybody waits for the device after a failure: recorded steps
  // hold on to the groups' communicators, and kernels may wait for ranks that are gone. No step
  // follows.
  void leave_ranks();
  // Every step() is collective over groups.ep, and runs a forward even if it has no tokens. Else
  // over groups.tp.
  bool runs_in_lock_step() const;

  // Throws Error(kRun) for an empty prompt, or one that leaves no room for a response.
  void submit(Request request);
  // Launches one forward over what the scheduler chose, with one token for each sequence that is
  // due, and records what the step launched by the call before has sampled, which it waits for;
  // returns what finished by that, by ascending id. Where nothing is left in flight the device is
  // done, too.
  std::vector<Completion> step();
  bool has_work() const;
  int64_t num_waiting() const;
  int64_t num_running() const;  // less those whose last token is under way
  // True while another request could start at once: what a driver asks before it draws from a
  // queue.
  bool has_room() const;
  // Ends a request with what it has, what is under way included (it waits for that); it is returned
  // by the next step() with finish kAbort, if that did not end it anyhow.
  void abort(int64_t id);
  void abort_all();
  // The weights changed: forgets every cached prefix. Only while no request is in flight.
  void on_weights_updated();

  const EngineStats& stats() const;
  void reset_stats();
  int64_t memory_bytes() const;
  // The memory of keys and values, [bytes] U8, for others to use while no request is in flight.
  // Whoever writes to it calls on_weights_updated() before the next request.
  tensor::Tensor lend_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// submit + step until all are done; results in the requests' order. Not in lock step.
std::vector<Completion> generate_all(Engine& engine, std::vector<Request> requests);

}  // namespace slimexx::rollout
