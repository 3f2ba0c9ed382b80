// `random`: a fair coin from the sample's seed, for trying a pipeline without a grader.
#include "slimexx/base/philox.h"

#include "reward/graders.h"

namespace slimexx::reward {

Grade grade_random(const RewardInput& input) {
  constexpr uint64_t kStream = 0x7265776172640000;  // separates it from other uses of the same seed
  Grade grade;
  grade.reward = static_cast<double>(PhiloxStream(input.seed, kStream).next_word() >> 31);
  grade.reason = "a coin";
  return grade;
}

}  // namespace slimexx::reward
