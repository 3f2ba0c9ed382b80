// A rank's pipeline stages, for training and scoring.
#pragma once
#include <utility>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/model/decoder.h"

namespace slimexx::train {

// Decoders of a rank's pipeline stages, by chunk: one, or several with interleaved stages
// (model::list_stages). Borrowed.
struct StageDecoders {
  StageDecoders(const model::Decoder& decoder) : chunks{&decoder} {}
  explicit StageDecoders(std::vector<const model::Decoder*> decoders)
      : chunks(std::move(decoders)) {}
  std::vector<const model::Decoder*> chunks;
};

// SLX_CHECKs that these are the stages of this rank of groups.pp: stages in another order would
// deadlock.
void check_stages(const StageDecoders& decoders, const dist::Groups& groups);

// Whether this rank is the reporter of its model replica: the first tp and cp rank of the last
// pipeline stage. All ranks of the replica have its losses and log-probs; only those of the
// reporter count.
bool is_reporter(const dist::Groups& groups);

}  // namespace slimexx::train
