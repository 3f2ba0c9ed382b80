// The device side of the engine: keys and values, batches, the model, sampling and recorded decode
// steps. Steps are queued and not waited for.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "rollout/scheduling/kv_cache.h"
#include "rollout/scheduling/lru_map.h"
#include "rollout/step/batch_builder.h"
#include "rollout/step/step_forward.h"
#include "rollout/step/step_plan.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/model/decoder.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::rollout {

class StepRunner {
 public:
  // Decoder, weights and groups are borrowed. Allocates all memory here. `records_steps`: decode
  // steps become graphs if possible (see Engine::records_steps).
  StepRunner(const model::Decoder& decoder, const model::ModelParameters& weights,
             tensor::Device device, const StepSizes& sizes, int64_t num_pages,
             tensor::Tensor cache_memory, const dist::Groups& groups, bool records_steps);
  ~StepRunner();  // waits for queued work
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Queues one forward over the chunks (possibly none), and sampling for those that need it.
  // Collective over the groups' tp and ep ranks. Tokens below 0 are taken from the launch before.
  // At most one launch may be unfinished (is_ready not passed) at the call. The result stays valid
  // until the launch after the next. `makes_drafts`: draft the tokens after the sampled ones if an
  // MTP layer can.
  StepSamples& launch(std::span<const Chunk> chunks, bool makes_drafts);

  // See Engine.
  bool records_steps() const { return records_steps_; }
  void leave_ranks();

  tensor::Tensor cache_bytes() const { return kv_cache_.bytes(); }
  int64_t memory_bytes() const;

 private:
  std::optional<BatchBuilder::DecodeShape> decode_shape(std::span<const Chunk> chunks,
                                                        bool makes_drafts) const;
  void queue_decode(std::span<const Chunk> chunks, const BatchBuilder::DecodeShape& shape);
  void queue_step(const model::Batch& batch);
  void queue_samples(const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                     const std::vector<SamplingGroup>& groups);
  void queue_drafts(const StepOutput& step);

  const model::Decoder& decoder_;
  const model::ModelParameters& weights_;
  StepSizes sizes_;
  int64_t head_rows_;  // per head call
  KvCache kv_cache_;
  BatchBuilder builder_;
  tensor::Arena arena_;
  dist::Groups groups_;               // the engine's
  dist::PeerMemories peer_memories_;  // of arena_
  bool records_steps_;
  ops::Context ctx_;  // allocates from arena_
  // A decode step is recorded at its second use, for the builder's set whose memory it uses. An
  // evicted graph is never in flight: only the most recently used one can be.
  using RecordedStep = std::pair<size_t, BatchBuilder::DecodeShape>;
  std::set<RecordedStep> used_steps_;
  LruMap<RecordedStep, tensor::Graph> recorded_steps_{kMaxRecordedSteps};
};

}  // namespace slimexx::rollout
