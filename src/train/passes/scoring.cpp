#include "train/passes/scoring.h"

#include <cstring>
#include <numeric>

#include "slimexx/base/activity.h"

namespace slimexx::train {

namespace {

void append_scores(const Pass& pass, InFlight& f, std::string& bytes) {
  run_head(pass, f, false);
  if (pass.ctx.planning()) return;
  for (const tensor::Tensor& t : {f.log_probs, f.entropies}) {
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(t.size_bytes()));
    tensor::download(pass.ctx.stream, bytes.data() + at, t);
  }
}

}  // namespace

void run_scoring(std::span<const Operation> operations, const ScoringWork& work,
                 std::span<Slot> slots, std::string& bytes) {
  for (const Operation& operation : operations) {
    note_progress();
    Slot& slot = slots[operation.slot];
    const StageChunk& chunk = work.chunks[operation.chunk];
    const Pass pass{chunk.decoder, chunk.weights, work.head, slot.ctx};
    const bool is_forward = operation.kind == OperationKind::kForward;
    if (!slot.in_flight) {
      slot.in_flight.emplace().mark = slot.ctx.arena.mark();
      start_microbatch(pass, work.samples,
                       work.microbatches[static_cast<size_t>(operation.microbatch)],
                       *slot.in_flight);
    }
    InFlight& f = *slot.in_flight;
    if (operation.kind == OperationKind::kReceiveForward)
      receive_rows(slot.ctx, f.input, operation.peer);
    if (operation.kind == OperationKind::kSendForward)
      send_rows(slot.ctx, f.output, operation.peer);
    if (is_forward) run_layers(pass, f, false);
    const bool has_head = chunk.decoder.stage().has_head;
    if (is_forward && has_head) append_scores(pass, f, bytes);
    if (operation.kind != (has_head ? OperationKind::kForward : OperationKind::kSendForward))
      continue;
    slot.ctx.arena.release_to(f.mark);
    slot.in_flight.reset();
  }
}

void read_scores(const std::string& bytes, size_t& at, std::span<const Sample> samples,
                 std::span<const int64_t> indices, std::span<TokenScores> scores) {
  for (auto field : {&TokenScores::log_probs, &TokenScores::entropies}) {
    for (const int64_t i : indices) {
      auto& values = scores[static_cast<size_t>(i)].*field;
      values.resize(static_cast<size_t>(samples[static_cast<size_t>(i)].response_length));
      std::memcpy(values.data(), bytes.data() + at, values.size() * sizeof(float));
      at += values.size() * sizeof(float);
    }
  }
}

SlotBytes measure_scoring(const ScoringWork& work, int rank, const PipelineShape& shape,
                          size_t num_slots, tensor::Device device, const dist::Groups& groups,
                          int64_t most_ep_rows) {
  const auto operations = list_forward_operations(rank, shape, std::ssize(work.microbatches));
  PlanningSlots plan(count_all(operations), num_slots > 1, device, groups, most_ep_rows);
  std::string no_scores;
  run_scoring(operations, work, plan.slots(), no_scores);
  return plan.most_bytes();
}

Scorer::Scorer(const StageDecoders& decoders, const model::ParameterStore& store, float temperature,
               tensor::Device device, const dist::Groups& groups)
    : chunks_(bind_chunks(decoders, store, false)),
      groups_(groups),
      head_options_{.temperature = temperature},
      device_(device),
      scratch_(device, 0, "activations of one forward") {
  check_stages(decoders, groups);
}

Scorer::~Scorer() = default;

std::vector<TokenScores> Scorer::score(std::span<const Sample> samples, int64_t most_tokens) {
  const PipelineShape shape{.num_ranks = groups_.pp.size(), .num_chunks = chunks_.size()};
  std::vector<std::vector<int64_t>> microbatches(
      static_cast<size_t>(round_up_microbatches(shape, 1)));
  microbatches[0].resize(samples.size());
  std::iota(microbatches[0].begin(), microbatches[0].end(), 0);
  const auto operations =
      list_forward_operations(groups_.pp.rank(), shape, std::ssize(microbatches));
  const ScoringWork work{chunks_, head_options_, samples, microbatches};
  const size_t num_slots = count_slots(operations);
  while (arenas_.size() < num_slots) {
    arenas_.emplace_back(device_, 0, scratch_.what_for());
    if (num_slots > 1) arenas_.back().share_scratch(scratch_);
  }
  const SlotBytes bytes =
      measure_scoring(work, groups_.pp.rank(), shape, num_slots, device_, groups_,
                      most_tokens * groups_.ep.size() * groups_.etp.size());
  scratch_.reserve(bytes.scratch);
  std::vector<Slot> slots;
  for (tensor::Arena& arena : arenas_) {
    arena.reserve(bytes.kept);
    slots.push_back({ops::compute_context(arena, groups_)});
  }
  std::string scored;
  run_scoring(operations, work, slots, scored);
  if (!is_reporter(groups_)) return {};
  std::vector<TokenScores> scores(samples.size());
  size_t at = 0;
  read_scores(scored, at, samples, microbatches[0], scores);
  return scores;
}

}  // namespace slimexx::train
