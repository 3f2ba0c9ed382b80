// Distribution of response lengths, for plans: exponential, cut off at the longest. At each token
// the same share of the remaining responses stops. Only the mean and the limit of a rollout are
// known; its slowest part is the last few responses that run alone.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::rl {

class ResponseLengths {
 public:
  // 0 < mean <= longest, in tokens. If they are equal, all responses have that length.
  ResponseLengths(int64_t mean, int64_t longest);

  // The share of responses that are longer than `tokens`.
  double longer_than(double tokens) const;
  // Mean number of tokens that a running sample has so far, if a new sample replaces each one that
  // ends.
  double mean_age() const;

  // A stretch of decode steps: their number, the samples that run, and the tokens each has so far.
  struct Stretch {
    double steps = 0, running = 0, age = 0;
  };
  // The stretches, in order of time, for `samples` samples of which at most `most_running` run at
  // once: first full batches while samples wait, then the samples that are left.
  std::vector<Stretch> list_stretches(double samples, double most_running) const;

 private:
  double integral(double begin, double end) const;  // the integral of longer_than

  double mean_, longest_;
  double rate_ = 0;  // longer_than is exp(-rate * tokens)
};

}  // namespace slimexx::rl
