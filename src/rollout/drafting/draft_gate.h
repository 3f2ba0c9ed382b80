// Chooses how many tokens to draft per sequence. Weighs the gain from drafts, estimated from past
// acceptance, against the cost of the extra rows and of drafting. Counts bytes and measures no
// time, so all ranks of an engine make the same choice, and a repeated run makes the same choices.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/model/spec.h"
#include "slimexx/tensor/device_kinds.h"

namespace slimexx::rollout {

// Cost of a decode step on one rank, in bytes read. model::share_of_experts gives the share of
// experts that is read.
struct DecodeCost {
  double dense = 1, experts = 0;
  // Time in which a layer's kernels wait for one another, converted to bytes at copy bandwidth.
  double waits = 0;
  double expert_rate = 0;  // k / E: experts per token / number of experts
  double rows_of_row = 1;  // rows at a rank's experts / rows of its own batch
  double row = 0;          // logits of one row, written and read
  double cached_token = 0;
  // Cost of the MTP layer that drafts, in three parts: all except experts and head (bytes read, and
  // waits), its experts, and the head.
  double guess = 0, guess_experts = 0, guess_head = 0;
  // Cost of a forward with `rows` rows. `context`: cached tokens that each row attends to.
  double of_rows(double rows, double context) const;
  // Cost of a step that, for each sequence, verifies `drafts` drafts and makes as many new ones.
  // The MTP layer computes all rows, and then one row per sequence for every further draft.
  double of_step(double sequences, double drafts, double context) const;
};
struct DecodeSetting {
  tensor::DecodeRates rates = {};  // the same on all ranks of an engine; empty: layers never wait
  int64_t element_bytes = 2;
  double cached_token = 0;  // bytes of keys and values per token, over all layers
  bool drafts_by_mtp = false;
};
DecodeCost decode_cost(const model::ModelSpec& spec, const dist::Groups& groups,
                       const DecodeSetting& setting);

class DraftGate {
 public:
  // `most`: upper bound on drafts per sequence.
  DraftGate(int64_t most, const DecodeCost& cost);
  // Returns the number of drafts per sequence, at most `most`, that yields the most tokens per cost
  // in the next step. That step has `running` sequences of `context` tokens on average. Every
  // kProbeCalls-th call returns `most`, to notice when drafts get better.
  int64_t choose(int64_t running, double context, int64_t most);
  // Whether the next call to choose() may return more than 0, so that this step should make drafts.
  bool goes_on() const { return last_ > 0 || (calls_ + 1) % kProbeCalls == 0; }
  // For one sequence, `offered` drafts were verified and `accepted` of them accepted.
  void record(int64_t offered, int64_t accepted);

  static constexpr int64_t kProbeCalls = 64;

 private:
  struct Count {
    double offered = 0, right = 0;
  };
  DecodeCost cost_;
  std::vector<Count> counts_;  // entry i: how often draft i was verified, and how often all drafts
                               // up to i were accepted
  int64_t calls_ = 0, last_ = 0;
};

}  // namespace slimexx::rollout
