#include "slimexx/rollout/engine.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "rollout/drafting/draft_gate.h"
#include "rollout/drafting/lookup_drafter.h"
#include "rollout/scheduling/admission.h"
#include "rollout/scheduling/kv_cache.h"
#include "rollout/scheduling/scheduler.h"
#include "rollout/step/step_runner.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/sampling.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::rollout {
namespace {

const EngineOptions& checked(const EngineOptions& options, const model::Decoder& decoder,
                             tensor::Device device) {
  check_cache_kinds(decoder.spec());
  check_options(options, decoder.max_positions(), device);
  return options;
}

Completion to_completion(Sequence& sequence, FinishReason finish) {
  const auto response = sequence.tokens.begin() + sequence.num_prompt_tokens();
  return {.id = sequence.request.id,
          .tokens = {response, sequence.tokens.end()},
          .log_probs = std::move(sequence.log_probs),
          .finish = finish,
          .cached_tokens = sequence.cached_tokens,
          .num_preemptions = sequence.num_preemptions};
}

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

tensor::DecodeRates rates_for_gate(const EngineOptions& options, tensor::Device device,
                                   const dist::Groups& groups) {
  if (options.decode_rates) return *options.decode_rates;
  SLX_CHECK(device.is_cpu() || (groups.tp.size() == 1 && groups.ep.size() == 1),
            "the ranks of an engine must agree on their rates");
  return tensor::read_decode_rates(device);
}

// Adds the lifetime of the object to step_ns.
class Stopwatch {
 public:
  explicit Stopwatch(EngineStats& stats) : stats_(stats), start_(now_ns()) {}
  ~Stopwatch() { stats_.step_ns += now_ns() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  EngineStats& stats_;
  int64_t start_;
};

}  // namespace

struct Engine::Impl {
  Impl(const model::Decoder& decoder, const model::ModelParameters& weights, tensor::Device device,
       const EngineOptions& options_in, TokenBytes token_bytes_in, int64_t num_sampled_tokens,
       tensor::Tensor cache_memory, const dist::Groups& groups_in);

  void submit(Request request);
  std::vector<Completion> step();
  void abort(int64_t id);
  void abort_all();
  bool looks_drafts_up() const { return options.num_draft_tokens > 0 && !options.drafts_by_mtp; }
  void guess_drafts();
  int64_t choose_num_drafts(int64_t most);
  void forget_drafts();
  std::vector<TokenId> guess(const Sequence& sequence, int64_t most);
  void learn_mtp_drafts(const StepSamples& samples, size_t row, Sequence& sequence) const;
  void expect_samples(StepSamples& launched);
  void record_in_flight();
  void record(Sequence& sequence, TokenId token, float log_prob);
  bool accepts_draft(Sequence& sequence, int64_t draft);
  std::optional<FinishReason> finish_reason(Sequence& sequence, TokenId token) const;
  void finish(Sequence& sequence, FinishReason reason);

  const model::ModelSpec& spec;
  EngineOptions options;
  TokenBytes token_bytes;
  StepSizes sizes;
  const dist::Groups& groups;
  EngineMemory memory;
  int64_t num_pages;
  Scheduler scheduler;
  LookupDrafter drafter;
  std::optional<DraftGate> gate;
  bool wants_mtp_drafts = false;  // for the next step
  StepRunner runner;
  StepSamples* in_flight = nullptr;  // launched, not yet recorded; null if there are no requests
  uint64_t num_arrivals = 0;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences;
  std::vector<std::unique_ptr<Sequence>> retired;  // finished; the step in flight may still refer
                                                   // to them
  std::vector<Completion> finished;
};

Engine::Impl::Impl(const model::Decoder& decoder, const model::ModelParameters& weights,
                   tensor::Device device, const EngineOptions& options_in,
                   TokenBytes token_bytes_in, int64_t num_sampled_tokens,
                   tensor::Tensor cache_memory, const dist::Groups& groups_in)
    : spec(decoder.spec()),
      options(checked(options_in, decoder, device)),
      token_bytes(std::move(token_bytes_in)),
      sizes(step_sizes(decoder, options, num_sampled_tokens)),
      groups(groups_in),
      memory(plan_engine_memory(decoder, weights, device, options, num_sampled_tokens, groups)),
      num_pages(count_pages(options, memory, device, cache_memory)),
      scheduler({.page_tokens = options.page_tokens,
                 .num_pages = num_pages,
                 .max_batch_tokens = sizes.max_tokens,
                 .max_running = options.max_running_requests,
                 .enable_prefix_cache = options.enable_prefix_cache}),
      runner(decoder, weights, device, sizes, num_pages, cache_memory, groups,
             options.records_steps) {
  SLX_CHECK_EQ(weights.embedding.dim(0) * groups.tp.size(), spec.vocab_size);
  if (options.num_draft_tokens > 0 && options.gates_drafts)
    gate.emplace(options.num_draft_tokens,
                 decode_cost(spec, groups,
                             {.rates = rates_for_gate(options, device, groups),
                              .element_bytes = tensor::dtype_bytes(weights.embedding.dtype()),
                              .cached_token = static_cast<double>(memory.page_bytes) /
                                              static_cast<double>(options.page_tokens),
                              .drafts_by_mtp = options.drafts_by_mtp}));
}

void Engine::Impl::submit(Request request) {
  check_request(request, sizes.max_sequence_tokens, spec.vocab_size, token_bytes != nullptr);
  auto sequence = std::make_unique<Sequence>();
  sequence->arrival = num_arrivals++;
  sequence->tokens = *request.prompt;
  sequence->stop_matcher = StopMatcher(request.sampling.stop);
  const int64_t room = sizes.max_sequence_tokens - sequence->num_tokens();
  sequence->max_tokens = sequence->num_tokens() + std::min(request.sampling.max_new_tokens, room);
  sequence->request = std::move(request);
  const auto [at, is_new] = sequences.try_emplace(sequence->request.id, nullptr);
  if (!is_new)
    throw Error(ErrorCode::kRun,
                fmt::format("request {} is already in flight", sequence->request.id));
  scheduler.add(sequence.get());
  if (looks_drafts_up()) drafter.start(sequence.get());
  at->second = std::move(sequence);
}

std::vector<Completion> Engine::Impl::step() {
  const Stopwatch stopwatch(scheduler.stats());
  if (options.num_draft_tokens > 0) guess_drafts();
  const std::vector<Chunk>& chunks = scheduler.plan_step();
  const bool launches = !chunks.empty() || step_together(groups);
  StepSamples* launched = launches ? &runner.launch(chunks, wants_mtp_drafts) : nullptr;
  scheduler.finish_step();
  record_in_flight();
  if (launched != nullptr) expect_samples(*launched);
  retired.clear();
  in_flight = launched;
  // When nothing is left in flight, wait for the last step, so that callers may reuse the cache and
  // the weights.
  if (sequences.empty()) record_in_flight();
  std::ranges::sort(finished, {}, &Completion::id);
  return std::exchange(finished, {});
}

// Sets the drafts that the next step verifies, in the batch rows that are free. Drafting needs the
// last tokens, so this function waits for the step in flight: steps with drafts do not overlap with
// the host's work.
void Engine::Impl::guess_drafts() {
  forget_drafts();
  const auto most = [&]() -> int64_t {
    const int64_t running = scheduler.num_running();
    return running == 0 ? 0 : std::min(options.num_draft_tokens, sizes.max_sequences / running - 1);
  };
  wants_mtp_drafts = false;
  if (!scheduler.only_decodes() || most() < 1) return;
  const int64_t chosen = choose_num_drafts(most());
  wants_mtp_drafts = options.drafts_by_mtp && (!gate || gate->goes_on());
  if (chosen < 1) return;
  record_in_flight();
  for (Sequence* sequence : scheduler.running()) {
    const int64_t room = sequence->max_tokens - sequence->num_tokens() - 1;
    sequence->drafts = guess(*sequence, std::min({chosen, most(), room}));
    sequence->num_accepted = 0;
    sequence->wanted_tokens =
        std::min(sequence->num_tokens() + std::ssize(sequence->drafts) + sizes.num_mtp_drafts - 1,
                 sequence->max_tokens);
  }
}

int64_t Engine::Impl::choose_num_drafts(int64_t most) {
  if (!gate) return most;
  double tokens = 0;
  for (const Sequence* sequence : scheduler.running())
    tokens += static_cast<double>(sequence->num_tokens());
  const int64_t running = scheduler.num_running();
  return gate->choose(running, tokens / static_cast<double>(running), most);
}

void Engine::Impl::forget_drafts() {
  if (in_flight != nullptr && in_flight->has_drafts()) record_in_flight();
  for (Sequence* sequence : scheduler.running()) {
    if (gate && !sequence->drafts.empty())
      gate->record(std::ssize(sequence->drafts), sequence->num_accepted);
    sequence->forget_drafts();
  }
}

std::vector<TokenId> Engine::Impl::guess(const Sequence& sequence, int64_t most) {
  if (!options.drafts_by_mtp) return drafter.guess(sequence, most);
  const std::vector<TokenId>& drafts = sequence.mtp_drafts;
  const auto end = std::ranges::find_if(drafts, [](TokenId token) { return token < 0; });
  const int64_t n = std::clamp<int64_t>(most, 0, end - drafts.begin());
  return {drafts.begin(), drafts.begin() + n};
}

// Appends a placeholder for the next token to each sequence that continues. A sequence that samples
// its last token can free its pages now: later launches run after this step.
void Engine::Impl::expect_samples(StepSamples& launched) {
  for (size_t row = 0; row < launched.sampled.size(); ++row) {
    Sequence*& sequence = launched.sampled[row];
    if (sequence->is_finished) {
      ++scheduler.stats().dropped_tokens;
      sequence = nullptr;
      continue;
    }
    if (launched.drafts[row] > 0) continue;
    sequence->expect_token(row);
    if (sequence->num_tokens() >= sequence->max_tokens) scheduler.remove(sequence);
  }
}

// Waits for the samples of the step in flight and records them.
void Engine::Impl::record_in_flight() {
  if (in_flight == nullptr) return;
  const StepSamples& samples = *std::exchange(in_flight, nullptr);
  const int64_t start = now_ns();
  samples.is_ready.synchronize();
  scheduler.stats().wait_ns += now_ns() - start;
  for (size_t row = 0; row < samples.sampled.size(); ++row) {
    if (samples.sampled[row] == nullptr) continue;
    if (samples.tokens[row] < 0) ops::throw_bad_logits(static_cast<int64_t>(row));
    Sequence& sequence = *samples.sampled[row];
    if (samples.drafts[row] > 0 && !accepts_draft(sequence, samples.drafts[row])) continue;
    learn_mtp_drafts(samples, row, sequence);
    record(sequence, samples.tokens[row], samples.log_probs[row]);
  }
}

// Stores the drafts made after this row's token. A row that is not a draft has drafts of all
// passes. The later passes already continue from the sequence's last accepted draft, so an accepted
// draft row replaces only the first entry.
void Engine::Impl::learn_mtp_drafts(const StepSamples& samples, size_t row,
                                    Sequence& sequence) const {
  std::vector<TokenId>& drafts = sequence.mtp_drafts;
  const TokenId* guess = samples.draft_tokens + row;
  if (samples.drafts[row] > 0) {
    if (!drafts.empty()) drafts[0] = *guess;
    return;
  }
  drafts.clear();
  for (int64_t pass = 0; pass < samples.num_draft_passes; ++pass, guess += samples.draft_stride)
    drafts.push_back(*guess);
}

void Engine::Impl::record(Sequence& sequence, TokenId token, float log_prob) {
  sequence.learn_token(token, log_prob);
  ++scheduler.stats().generated_tokens;
  if (const auto reason = finish_reason(sequence, token)) {
    finish(sequence, *reason);
  } else {
    scheduler.learned_token(&sequence);
  }
}

// Accepts the row of draft number `draft` if the row before it sampled that draft. Then appends a
// placeholder for this row's token.
bool Engine::Impl::accepts_draft(Sequence& sequence, int64_t draft) {
  if (sequence.is_finished || sequence.num_accepted != draft - 1 ||
      sequence.tokens.back() != sequence.drafts[static_cast<size_t>(draft - 1)])
    return false;
  scheduler.accepted_draft(&sequence);
  sequence.expect_token(0);
  return true;
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
  if (!sequence.is_removed) scheduler.remove(&sequence);
  sequence.is_finished = true;
  if (looks_drafts_up()) drafter.finish(&sequence);
  finished.push_back(to_completion(sequence, reason));
  retired.push_back(std::move(sequences.extract(finished.back().id).mapped()));
}

void Engine::Impl::abort(int64_t id) {
  if (!sequences.contains(id)) return;
  record_in_flight();
  const auto found = sequences.find(id);
  if (found != sequences.end()) finish(*found->second, FinishReason::kAbort);
  retired.clear();
}

void Engine::Impl::abort_all() {
  std::vector<int64_t> ids;
  for (const auto& [id, sequence] : sequences) ids.push_back(id);
  std::ranges::sort(ids);  // the order in which pages are released decides which are evicted first
  for (const int64_t id : ids) abort(id);
}

EngineMemory plan_engine_memory(const model::Decoder& decoder,
                                const model::ModelParameters& weights, tensor::Device device,
                                const EngineOptions& options, int64_t num_sampled_tokens,
                                const dist::Groups& groups) {
  checked(options, decoder, device);
  const StepSizes sizes = step_sizes(decoder, options, num_sampled_tokens);
  const model::ModelSpec spec = with_cached_layers(decoder.local_spec(), sizes.num_mtp_drafts > 0);
  const tensor::DType dtype = weights.embedding.dtype();
  const int64_t bytes_per_page = page_bytes(spec, dtype, options.page_tokens);
  return {.workspace_bytes =
              plan_batch_bytes(sizes.batch_limits()) +
              plan_step_arena(decoder, weights, device, sizes, groups) +
              dist::plan_peer_bytes(device, groups) +
              (options.records_steps && !device.is_cpu()
                   ? plan_recorded_bytes(decoder.local_spec(), groups, sizes.num_mtp_drafts)
                   : 0),
          .page_bytes = bytes_per_page,
          .padding_bytes = cache_padding(spec, dtype, options.page_tokens),
          .min_pages = sizes.max_pages(),
          .max_pages = useful_pages(options, bytes_per_page, sizes.max_pages())};
}

Engine::Engine(const model::Decoder& decoder, const model::ModelParameters& weights,
               tensor::Device device, const EngineOptions& options, TokenBytes token_bytes,
               int64_t num_sampled_tokens, tensor::Tensor cache_memory, const dist::Groups& groups)
    : impl_(std::make_unique<Impl>(decoder, weights, device, options, std::move(token_bytes),
                                   num_sampled_tokens, cache_memory, groups)) {}
Engine::~Engine() = default;
bool Engine::records_steps() const { return impl_->runner.records_steps(); }
void Engine::leave_ranks() { impl_->runner.leave_ranks(); }
bool Engine::runs_in_lock_step() const { return step_together(impl_->groups); }

void Engine::submit(Request request) { impl_->submit(std::move(request)); }
std::vector<Completion> Engine::step() { return impl_->step(); }
bool Engine::has_work() const { return !impl_->sequences.empty() || !impl_->finished.empty(); }
int64_t Engine::num_waiting() const { return impl_->scheduler.num_waiting(); }
int64_t Engine::num_running() const { return impl_->scheduler.num_running(); }
bool Engine::has_room() const { return impl_->scheduler.has_room(); }
void Engine::abort(int64_t id) { impl_->abort(id); }
void Engine::abort_all() { impl_->abort_all(); }
void Engine::on_weights_updated() {
  SLX_CHECK(impl_->sequences.empty(), "requests are in flight");
  impl_->scheduler.forget_prefixes();
}

const EngineStats& Engine::stats() const { return impl_->scheduler.stats(); }
void Engine::reset_stats() {
  impl_->scheduler.stats() = EngineStats{.num_pages = impl_->num_pages};
}
tensor::Tensor Engine::lend_cache() {
  SLX_CHECK(impl_->sequences.empty(), "requests are in flight");
  return impl_->runner.cache_bytes();
}
int64_t Engine::memory_bytes() const { return impl_->runner.memory_bytes(); }

std::vector<Completion> generate_all(Engine& engine, std::vector<Request> requests) {
  SLX_CHECK(!engine.runs_in_lock_step(),
            "all ranks of the engine must agree on the number of steps");
  std::unordered_map<int64_t, size_t> index_of;
  for (size_t i = 0; i < requests.size(); ++i) {
    index_of.emplace(requests[i].id, i);
    engine.submit(std::move(requests[i]));
  }
  std::vector<Completion> results(requests.size());
  while (engine.has_work()) {
    for (Completion& completion : engine.step()) {
      const auto found = index_of.find(completion.id);
      SLX_CHECK(found != index_of.end(), "request {} was in flight before", completion.id);
      results[found->second] = std::move(completion);
    }
  }
  return results;
}

}  // namespace slimexx::rollout
