// The rollout engine: continuous batching over a paged KV cache. One thread drives an engine: it
// submits requests and calls step() until none is left. The scheduler is a pure function of the
// calls it gets.
//
// An engine of several ranks has one Engine object per rank. Tensor-parallel ranks (groups.tp) hold
// a shard of every layer and of its keys and values; they get the same calls, do the same work and
// return the same results. If experts are split over more ranks than that (groups.ep), each tp
// group has its own requests (data-parallel attention), and all ep ranks call step() together, even
// with nothing to compute: see runs_in_lock_step().
//
// Host and device work overlap: step() launches a step before it reads what the previous step
// sampled. From device memory the launched step reads tokens that the host has not seen yet. If a
// sequence turns out to have ended, the one extra token computed for it is dropped and leaves no
// trace.
//
// The response to a request depends only on the weights, its prompt, its sampling parameters and
// its RandomName: not on the batch, chunking, prefix sharing, preemption or the size of the cache
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
#include "slimexx/tensor/device_kinds.h"

namespace slimexx::config {
class Binder;
}

namespace slimexx::rollout {

using TokenId = int32_t;

inline constexpr double kDefaultMemFraction = 0.9;

struct EngineOptions {
  int64_t page_tokens = 16;
  int64_t max_running_requests = 256;   // sequences in one batch
  int64_t chunked_prefill_size = 2048;  // tokens in one forward, decode and prefill together
  bool enable_prefix_cache = true;
  // Capacity of the KV cache: max_total_tokens if above 0, otherwise kv_cache_gib if set. Otherwise
  // 1 GiB on the CPU; on a GPU the rest of mem_fraction_static x device memory.
  int64_t max_total_tokens = 0;
  std::optional<double> kv_cache_gib = {};
  double mem_fraction_static = kDefaultMemFraction;
  int64_t max_sequence_tokens = 0;  // prompt and response together; 0: the model's max_positions
  // Speculative decoding: the most draft tokens per sequence and step. The same step verifies them,
  // in free rows of the batch. Drafts change the time at which a request finishes, not its
  // response.
  int64_t num_draft_tokens = 0;
  // True: the model's first MTP layer drafts. This layer also processes every token that the model
  // processes, and runs once more for each further draft. False: drafts are looked up in the
  // samples of the group.
  bool drafts_by_mtp = false;
  // Draft fewer tokens if so many are rejected that reading weights for them costs more time than
  // they save.
  bool gates_drafts = true;
  // Rates for gates_drafts, the same on all ranks of an engine (agree_on_rates). Empty: the rates
  // of the device. An engine of several ranks on GPUs needs them.
  std::optional<tensor::DecodeRates> decode_rates = {};
  // On a GPU, run decode steps as graphs if possible: see Engine::records_steps. Must be off if
  // threads share the device's streams: a recording would capture the work of other threads.
  bool records_steps = true;
};

struct SamplingParams {
  float temperature = 1.0f;  // > 0; log-probs are computed at this temperature
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0 or -1: off
  float min_p = 0.0f;
  bool greedy = false;
  int64_t max_new_tokens = 16;
  std::vector<TokenId> stop_token_ids;  // the stop token is part of the response
  std::vector<std::string>
      stop;  // a response ends with the token that completes one of these texts
};

// Names a sample for its random numbers (N8). The time of generation is not part of the name: a
// sample that is resumed later, or generated after a dropped group, draws the same numbers.
struct RandomName {
  uint64_t seed = 0;    // run seed (evaluation mixes in its own)
  uint64_t group = 0;   // number of the sample's group, counted over the whole run
  uint32_t sample = 0;  // index in the group
};

struct Request {
  int64_t id = 0;  // chosen by the caller; unique among requests in flight
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

struct EngineStats {  // since construction or the last reset_stats()
  int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0,
          recomputed_tokens = 0;
  int64_t dropped_tokens = 0;  // sampled after a stop that the host had not seen yet
  // Draft tokens verified, draft tokens accepted, and verifications (one per sequence and step).
  int64_t draft_tokens = 0, accepted_tokens = 0, verifications = 0;
  int64_t partial_chunks = 0;  // chunks that did not reach the end of their prompt
  int64_t max_batch_tokens = 0, max_running = 0, peak_pages = 0, num_pages = 0;
  int64_t step_ns = 0, wait_ns = 0;  // time in step(); the part of it spent waiting for the device
};

// Raw bytes of a token, for stop strings; comes from the caller's tokenizer.
using TokenBytes = std::function<const std::string&(TokenId)>;

// Device memory of an engine, known before it is built: workspace_bytes, plus page_bytes for each
// page of keys and values.
struct EngineMemory {
  // Staged batches, the activations and logits of a step, and the driver's memory for recorded
  // steps.
  int64_t workspace_bytes = 0;
  int64_t page_bytes = 0;     // page_tokens tokens over all layers
  int64_t padding_bytes = 0;  // between layers, upper bound
  int64_t min_pages = 0;      // enough for one sequence of the maximum length
  int64_t max_pages = 0;      // limit set by the options, or the most that can be useful
  int64_t min_cache_bytes() const { return min_pages * page_bytes + padding_bytes; }
  int64_t max_cache_bytes() const { return max_pages * page_bytes + padding_bytes; }
};
// Arguments as for Engine's constructor; the options for the size of the cache affect max_pages
// only. Allocates nothing on the device. Throws the errors of the constructor for options that
// cannot be served. max_pages follows max_total_tokens or kv_cache_gib if one is set.
EngineMemory plan_engine_memory(const model::Decoder& decoder,
                                const model::ModelParameters& weights, tensor::Device device,
                                const EngineOptions& options, int64_t num_sampled_tokens,
                                const dist::Groups& groups = dist::groups_of_one());

// In steps of at most this many rows, every tensor-parallel rank holds all rows; larger steps split
// the rows over the ranks (model/batch.h). 0 for one rank and for models with routed experts.
int64_t most_repeated_rows(const model::ModelSpec& spec, int tp_ranks);

class Engine {
 public:
  // `weights` are read in place (no copy) and must outlive the engine. Token ids from
  // `num_sampled_tokens` on are never sampled (pass the tokenizer's size if the vocabulary is
  // padded; 0: sample all). Plans and allocates all memory here; Error(kUsage) if the cache cannot
  // hold one sequence of the maximum length. `cache_memory` [bytes] U8, if defined, holds the keys
  // and values: its owner keeps it alive as long as the engine, may use it while no request is in
  // flight, and then calls on_weights_updated(). Decoder and weights are this rank's shard over the
  // tp and ep ranks of `groups`; `groups` are borrowed and must be for this device. All ranks of an
  // engine have the same options.
  Engine(const model::Decoder& decoder, const model::ModelParameters& weights,
         tensor::Device device, const EngineOptions& options, TokenBytes token_bytes,
         int64_t num_sampled_tokens, tensor::Tensor cache_memory = {},
         const dist::Groups& groups = dist::groups_of_one());
  ~Engine();
  // Whether decode steps run as graphs (tensor/graph.h). True on a GPU, unless the options forbid
  // it or experts are split over ranks without access to each other's memory (dist/peer_memory.h):
  // then the host waits in every layer for the number of incoming rows.
  bool records_steps() const;
  // Call before destroying the groups, and before waiting for the device after a failure: recorded
  // steps use the groups' communicators, and kernels may wait for ranks that have exited. No step
  // may follow.
  void leave_ranks();
  // True: every step() is collective over groups.ep and runs a forward even with no tokens. False:
  // it is collective over groups.tp.
  bool runs_in_lock_step() const;

  // Throws Error(kRun) for an empty prompt, or one that leaves no room for a response.
  void submit(Request request);
  // Launches one forward over the scheduler's chunks, which samples one token for each sequence
  // whose tokens are then all processed. Then waits for the step of the previous call and records
  // its samples; returns the requests that finish, by ascending id. If nothing is left in flight,
  // also waits for the new step.
  std::vector<Completion> step();
  bool has_work() const;
  int64_t num_waiting() const;
  int64_t num_running() const;  // without sequences whose last token is in flight
  // True if another request could start at once. Drivers check this before they draw from a queue.
  bool has_room() const;
  // Ends a request with the tokens it has, including those in flight (waits for them). The next
  // step() returns it with finish kAbort, unless it finished on its own.
  void abort(int64_t id);
  void abort_all();
  // Call after the weights change: forgets every cached prefix. Only while no request is in flight.
  void on_weights_updated();

  const EngineStats& stats() const;
  void reset_stats();
  int64_t memory_bytes() const;
  // The memory of keys and values, [bytes] U8, for other uses while no request is in flight. After
  // writing to it, call on_weights_updated() before the next request.
  tensor::Tensor lend_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Submits the requests and steps until all are done; results in the order of the requests. Not for
// engines in lock step.
std::vector<Completion> generate_all(Engine& engine, std::vector<Request> requests);

}  // namespace slimexx::rollout
