// How many tokens of each sequence are worth guessing: what decode steps gain by guesses that were
// right so far, against what more rows and the guesses cost. It counts bytes and does not measure
// time, so all ranks of an engine decide alike.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/model/spec.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rollout {

// What a decode step takes on a rank, in bytes that it reads: of experts those that
// model::share_of_experts says.
struct DecodeCost {
  double dense = 1, experts = 0;
  // While a layer's kernels wait for one another nothing is read: the bytes that could be.
  double waits = 0;
  double expert_rate = 0;  // k/E
  double rows_of_row = 1;  // rows that a rank's experts get for a row of its own
  double row = 0;          // logits of a row, written and read
  double cached_token = 0;
  // Of the MTP layer that guesses: what it reads and waits for, its experts, and the head.
  double guess = 0, guess_experts = 0, guess_head = 0;
  // Of a forward of so many rows. `context`: cached tokens that a row sees.
  double of_rows(double rows, double context) const;
  // Of a step that checks and makes `drafts` guesses for each of so many sequences. The MTP layer
  // computes all rows, and again a row of each sequence for every further guess.
  double of_step(double sequences, double drafts, double context) const;
};
struct DecodeSetting {
  tensor::Device device = {};
  int64_t element_bytes = 2;
  double cached_token = 0;  // bytes of keys and values of one over all layers
  bool drafts_by_mtp = false;
};
DecodeCost decode_cost(const model::ModelSpec& spec, const dist::Groups& groups,
                       const DecodeSetting& setting);

class DraftGate {
 public:
  // At most `most` drafts a sequence.
  DraftGate(int64_t most, const DecodeCost& cost);
  // For the next step, of `running` sequences of `context` tokens in the mean and at most `most`
  // drafts each: the number with the most tokens for its cost. Now and then it is `most`, so that
  // guesses that got better are noticed.
  int64_t choose(int64_t running, double context, int64_t most);
  // Whether the call after this one may want drafts, so that this step should make some.
  bool goes_on() const { return last_ > 0 || (calls_ + 1) % kProbeCalls == 0; }
  // Of a sequence, so many were checked and so many were right.
  void record(int64_t offered, int64_t accepted);

  static constexpr int64_t kProbeCalls = 64;

 private:
  struct Count {
    double offered = 0, right = 0;
  };
  DecodeCost cost_;
  std::vector<Count> counts_;  // by draft: how often it and all before it were right
  int64_t calls_ = 0, last_ = 0;
};

}  // namespace slimexx::rollout
