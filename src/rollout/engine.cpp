#include "slimexx/rollout/engine.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "rollout/admission.h"
#include "rollout/batch_builder.h"
#include "rollout/kv_cache.h"
#include "rollout/scheduler.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::rollout {
namespace {

const EngineOptions& checked(const EngineOptions& options, int64_t max_positions,
                             tensor::Device device) {
  check_options(options, max_positions, device);
  return options;
}

int64_t longest_sequence(const EngineOptions& options, int64_t max_positions) {
  return options.max_sequence_tokens > 0 ? options.max_sequence_tokens : max_positions;
}

// Of one head call. A device takes the rows of a whole batch at once where it can.
int64_t max_logits_bytes(tensor::Device device) {
  return device.is_cpu() ? int64_t{64} << 20 : int64_t{1} << 30;
}

// Batches of decode steps come in these sizes, so that few of them are recorded.
int64_t round_up_sequences(int64_t n, int64_t most) {
  int64_t rounded = 1;
  while (rounded < n) rounded += rounded < 8 ? rounded : rounded < 32 ? 8 : rounded < 64 ? 16 : 32;
  return std::min(rounded, std::max(n, most));
}

constexpr int64_t kShortestKeys = 1024;

Generation to_generation(Sequence& sequence, FinishReason finish) {
  const auto response = sequence.tokens.begin() + sequence.num_prompt_tokens();
  return {.id = sequence.request.id,
          .tokens = {response, sequence.tokens.end()},
          .log_probs = std::move(sequence.log_probs),
          .finish = finish,
          .cached_tokens = sequence.cached_tokens,
          .num_preemptions = sequence.num_preemptions};
}

}  // namespace

struct Engine::Impl {
  Impl(const model::Transformer& transformer_in, const model::ModelParameters& weights_in,
       tensor::Device device, const EngineOptions& options_in, TokenBytes token_bytes_in,
       int64_t num_sampled_tokens);

  void submit(Request request);
  std::vector<Generation> step();
  void abort(int64_t id);
  void run_batch(const std::vector<Chunk>& chunks);
  std::optional<BatchBuilder::DecodeShape> decode_shape(const std::vector<Chunk>& chunks) const;
  void run_decode(const std::vector<Chunk>& chunks, const BatchBuilder::DecodeShape& shape);
  void queue_step(const model::Batch& batch);
  void sample_group(tensor::Tensor x, const SamplingGroup& group);
  void record(Sequence& sequence, TokenId token, float log_prob);
  std::optional<FinishReason> finish_reason(Sequence& sequence, TokenId token) const;
  void finish(Sequence& sequence, FinishReason reason);
  tensor::Arena planned_arena();
  int64_t max_keys() const {
    return ((max_sequence_tokens - 1) / options.page_tokens + 1) * options.page_tokens;
  }

  const model::Transformer& transformer;
  const model::ModelParameters& weights;
  const model::ModelSpec& spec;
  EngineOptions options;
  TokenBytes token_bytes;
  int64_t allowed_tokens;
  int64_t max_sequence_tokens;
  int64_t max_batch_tokens;
  int64_t head_rows;  // of one head call
  tensor::Stream stream;
  int64_t num_pages;
  KvCache kv_cache;
  Scheduler scheduler;
  BatchBuilder builder;
  tensor::Arena arena;
  std::map<BatchBuilder::DecodeShape, tensor::Graph> decode_graphs;
  uint64_t num_arrivals = 0;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences;
  std::vector<Generation> finished;
};

Engine::Impl::Impl(const model::Transformer& transformer_in,
                   const model::ModelParameters& weights_in, tensor::Device device,
                   const EngineOptions& options_in, TokenBytes token_bytes_in,
                   int64_t num_sampled_tokens)
    : transformer(transformer_in),
      weights(weights_in),
      spec(transformer_in.spec()),
      options(checked(options_in, transformer_in.max_positions(), device)),
      token_bytes(std::move(token_bytes_in)),
      allowed_tokens(num_sampled_tokens >= spec.vocab_size ? 0 : num_sampled_tokens),
      max_sequence_tokens(longest_sequence(options, transformer_in.max_positions())),
      // Nor does a step ever compute more than all that can be running.
      max_batch_tokens(std::min(options.chunked_prefill_size,
                                options.max_running_requests * (max_sequence_tokens - 1))),
      head_rows(
          std::min({options.max_running_requests, max_batch_tokens,
                    model::head_chunk_rows(spec, {.max_logits_bytes = max_logits_bytes(device)})})),
      stream(tensor::compute_stream(device)),
      num_pages(count_pages(options,
                            page_bytes(spec, weights_in.embedding.dtype(), options.page_tokens),
                            max_sequence_tokens)),
      kv_cache(spec, device, weights_in.embedding.dtype(), num_pages, options.page_tokens),
      scheduler({.page_tokens = options.page_tokens,
                 .num_pages = num_pages,
                 .max_batch_tokens = max_batch_tokens,
                 .max_running = options.max_running_requests,
                 .enable_prefix_cache = options.enable_prefix_cache}),
      builder(device, {.max_tokens = max_batch_tokens,
                       .max_sequences = std::min(options.max_running_requests, max_batch_tokens),
                       .max_pages = (max_sequence_tokens - 1) / options.page_tokens + 1,
                       .page_tokens = options.page_tokens}),
      arena(planned_arena()) {}

// The arena that a step needs at most, measured by a dry run of the largest one.
tensor::Arena Engine::Impl::planned_arena() {
  tensor::Arena plan = tensor::Arena::for_planning(stream.device, "rollout step");
  const tensor::Stream planning = tensor::planning_stream(stream.device, plan);
  const tensor::Tensor x = transformer.forward(planning, plan, weights,
                                               builder.build_largest(kv_cache.layers()), nullptr);
  const tensor::Tensor rows = plan.allocate(tensor::DType::kI32, {head_rows});
  const tensor::Tensor logits = model::head_logits(planning, plan, spec, weights, x, rows);
  const auto scalars = [&](tensor::DType dtype) { return plan.allocate(dtype, {head_rows}); };
  ops::sample_tokens(planning, scalars(tensor::DType::kI32), scalars(tensor::DType::kF32), logits,
                     plan.allocate(tensor::DType::kU8,
                                   {head_rows, static_cast<int64_t>(sizeof(ops::SamplingRow))}),
                     allowed_tokens);
  return tensor::Arena(stream.device, plan.high_water_bytes(), "rollout step");
}

void Engine::Impl::submit(Request request) {
  check_request(request, max_sequence_tokens, spec.vocab_size, token_bytes != nullptr);
  auto sequence = std::make_unique<Sequence>();
  sequence->arrival = num_arrivals++;
  sequence->tokens = *request.prompt;
  sequence->stop_matcher = StopMatcher(request.sampling.stop);
  const int64_t room = max_sequence_tokens - sequence->num_tokens();
  sequence->max_tokens = sequence->num_tokens() + std::min(request.sampling.max_new_tokens, room);
  sequence->request = std::move(request);
  const auto [at, is_new] = sequences.try_emplace(sequence->request.id, nullptr);
  if (!is_new)
    throw Error(ErrorCode::kRun,
                fmt::format("request {} is in flight already", sequence->request.id));
  scheduler.add(sequence.get());
  at->second = std::move(sequence);
}

std::vector<Generation> Engine::Impl::step() {
  const std::vector<Chunk>& chunks = scheduler.plan_step();
  if (!chunks.empty()) run_batch(chunks);
  std::ranges::sort(finished, {}, &Generation::id);
  return std::exchange(finished, {});
}

void Engine::Impl::run_batch(const std::vector<Chunk>& chunks) {
  if (const auto shape = decode_shape(chunks)) {
    run_decode(chunks, *shape);
  } else {
    queue_step(builder.build(stream, chunks, kv_cache.layers()));
  }
  scheduler.finish_step();
  const BatchBuilder::Sampled sampled = builder.download_samples(stream);
  const auto due = builder.due();
  for (size_t i = 0; i < due.size(); ++i) {
    if (sampled.tokens[i] < 0) ops::throw_bad_logits(static_cast<int64_t>(i));
    record(*due[i], sampled.tokens[i], sampled.log_probs[i]);
  }
}

// Forward and sampling of what the builder has staged.
void Engine::Impl::queue_step(const model::Batch& batch) {
  tensor::ArenaScope scope(arena);
  const tensor::Tensor x = transformer.forward(stream, arena, weights, batch, nullptr);
  for (const SamplingGroup& group : builder.group_samples(head_rows)) sample_group(x, group);
}

// The recorded step that serves these shares: every one the next token of its sequence, on a
// device, within what one head call takes.
std::optional<BatchBuilder::DecodeShape> Engine::Impl::decode_shape(
    const std::vector<Chunk>& chunks) const {
  if (stream.device.is_cpu()) return std::nullopt;
  int64_t longest = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.count != 1 || !chunk.samples) return std::nullopt;
    longest = std::max(longest, chunk.begin + 1);
  }
  const int64_t batch_size = round_up_sequences(std::ssize(chunks), head_rows);
  if (batch_size > head_rows) return std::nullopt;
  int64_t keys = kShortestKeys;
  while (keys < longest) keys *= 2;
  return BatchBuilder::DecodeShape{batch_size, std::min(keys, max_keys())};
}

void Engine::Impl::run_decode(const std::vector<Chunk>& chunks,
                              const BatchBuilder::DecodeShape& shape) {
  const model::Batch& batch = builder.build_decode(stream, chunks, kv_cache.layers(), shape);
  const auto found = decode_graphs.find(shape);
  if (found != decode_graphs.end()) return found->second.launch(stream);
  // The first time in the plain way; recorded for all later ones.
  queue_step(batch);
  decode_graphs.emplace(shape, tensor::Graph(stream, [&] { queue_step(batch); }));
}

void Engine::Impl::sample_group(tensor::Tensor x, const SamplingGroup& group) {
  tensor::ArenaScope scope(arena);
  const tensor::Tensor logits = model::head_logits(stream, arena, spec, weights, x, group.rows);
  ops::sample_tokens(stream.with_scratch(arena), group.tokens, group.log_probs, logits,
                     group.parameters, allowed_tokens);
}

void Engine::Impl::record(Sequence& sequence, TokenId token, float log_prob) {
  sequence.tokens.push_back(token);
  sequence.log_probs.push_back(log_prob);
  ++scheduler.stats().generated_tokens;
  if (const auto reason = finish_reason(sequence, token)) finish(sequence, *reason);
}

std::optional<FinishReason> Engine::Impl::finish_reason(Sequence& sequence, TokenId token) const {
  const std::vector<TokenId>& stop_ids = sequence.request.sampling.stop_token_ids;
  if (std::ranges::find(stop_ids, token) != stop_ids.end()) return FinishReason::kStop;
  if (!sequence.stop_matcher.empty() && sequence.stop_matcher.feed(token_bytes(token)))
    return FinishReason::kStop;
  if (sequence.num_tokens() >= sequence.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

void Engine::Impl::finish(Sequence& sequence, FinishReason reason) {
  scheduler.remove(&sequence);
  finished.push_back(to_generation(sequence, reason));
  sequences.erase(finished.back().id);
}

void Engine::Impl::abort(int64_t id) {
  const auto found = sequences.find(id);
  if (found != sequences.end()) finish(*found->second, FinishReason::kAbort);
}

Engine::Engine(const model::Transformer& transformer, const model::ModelParameters& weights,
               tensor::Device device, const EngineOptions& options, TokenBytes token_bytes,
               int64_t num_sampled_tokens)
    : impl_(std::make_unique<Impl>(transformer, weights, device, options, std::move(token_bytes),
                                   num_sampled_tokens)) {}
Engine::~Engine() = default;

void Engine::submit(Request request) { impl_->submit(std::move(request)); }
std::vector<Generation> Engine::step() { return impl_->step(); }
bool Engine::has_work() const { return !impl_->sequences.empty() || !impl_->finished.empty(); }
int64_t Engine::num_waiting() const { return impl_->scheduler.num_waiting(); }
int64_t Engine::num_running() const { return impl_->scheduler.num_running(); }
bool Engine::has_room() const { return impl_->scheduler.has_room(); }
void Engine::abort(int64_t id) { impl_->abort(id); }
void Engine::abort_all() {
  std::vector<int64_t> ids;
  for (const auto& [id, sequence] : impl_->sequences) ids.push_back(id);
  std::ranges::sort(ids);  // the order in which pages are given up decides which are evicted first
  for (const int64_t id : ids) impl_->abort(id);
}
void Engine::on_weights_updated() { impl_->scheduler.forget_prefixes(); }

const EngineStats& Engine::stats() const { return impl_->scheduler.stats(); }
void Engine::reset_stats() {
  impl_->scheduler.stats() = EngineStats{.num_pages = impl_->num_pages};
}
tensor::Tensor Engine::lend_cache() {
  SLX_CHECK(impl_->sequences.empty(), "requests are in flight");
  return impl_->kv_cache.bytes();
}
int64_t Engine::memory_bytes() const {
  return impl_->kv_cache.memory_bytes() + impl_->builder.memory_bytes() +
         impl_->arena.capacity_bytes();
}

std::vector<Generation> generate_all(Engine& engine, std::vector<Request> requests) {
  std::unordered_map<int64_t, size_t> index_of;
  for (size_t i = 0; i < requests.size(); ++i) {
    index_of.emplace(requests[i].id, i);
    engine.submit(std::move(requests[i]));
  }
  std::vector<Generation> results(requests.size());
  while (engine.has_work()) {
    for (Generation& generation : engine.step()) {
      const auto found = index_of.find(generation.id);
      SLX_CHECK(found != index_of.end(), "request {} was in flight before", generation.id);
      results[found->second] = std::move(generation);
    }
  }
  return results;
}

}  // namespace slimexx::rollout
