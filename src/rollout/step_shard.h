// What a tensor-parallel rank does with a step: its rows of the batch, the tokens that it embeds,
// and whole rows of logits on every tp rank, so that all of them sample the same tokens.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/decoder.h"

namespace slimexx::rollout {

// Leaves in which rows of logits are normalised (numerics contract, N6).
int64_t count_vocabulary_leaves(const model::Decoder& decoder, const dist::Groups& groups);

class StepShard {
 public:
  // The batch with what this tp rank has of it; valid until the next call. `tokens` are known: host
  // memory, since engines of several ranks run on the CPU.
  model::Batch split(const ops::Context& ctx, int64_t vocab_size, const model::Batch& staged,
                     std::span<const int32_t> tokens);
  // Raw logits [R,V] f32, from the arena, of `rows` [R] i32 of the batch, ascending. x[t,H] are
  // this rank's rows of its output. `host_rows` are the same, for more than one tp rank.
  tensor::Tensor logits(const ops::Context& ctx, const model::HeadSpec& spec,
                        const model::HeadParameters<tensor::Tensor>& weights, tensor::Tensor x,
                        tensor::Tensor rows, std::span<const int32_t> host_rows) const;

 private:
  std::vector<dist::Range> tp_rows_;
};

}  // namespace slimexx::rollout
