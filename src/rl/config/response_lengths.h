// How long the responses of a rollout are, for plans: a share of them stops at each token, the same
// share of those that are left, and the rest is cut off at the longest. What is measured of a
// rollout is its mean and its limit; its slowest part is the few that go on alone.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::rl {

class ResponseLengths {
 public:
  // 0 < mean <= longest, tokens. If they are equal all responses are that long.
  ResponseLengths(int64_t mean, int64_t longest);

  // The share of responses that are longer than `tokens`.
  double longer_than(double tokens) const;
  // What a running sample has so far, in the mean, where one that ends makes room for another.
  double mean_age() const;

  // Stretches of decode steps: how many, how many samples run, and what each has so far.
  struct Stretch {
    double steps = 0, running = 0, age = 0;
  };
  // `samples` of them, at most `most_running` at once: as many as may run, while some wait; then
  // those that are left. Ascending in time.
  std::vector<Stretch> list_stretches(double samples, double most_running) const;

 private:
  double integral(double begin, double end) const;  // of longer_than

  double mean_, longest_;
  double rate_ = 0;  // of the share that stops at a token: longer_than is exp(-rate * tokens)
};

}  // namespace slimexx::rl
