#include "slimexx/train/stage_decoders.h"

#include "slimexx/base/check.h"

namespace slimexx::train {

void check_stages(const StageDecoders& decoders, const dist::Groups& groups) {
  const int rank = groups.pp.rank(), last = groups.pp.size() - 1;
  for (size_t chunk = 0; chunk < decoders.chunks.size(); ++chunk) {
    const model::StageRange& stage = decoders.chunks[chunk]->stage();
    SLX_CHECK_EQ(stage.has_embedding, rank == 0 && chunk == 0);
    SLX_CHECK_EQ(stage.has_head, rank == last && chunk + 1 == decoders.chunks.size());
  }
}

bool is_reporter(const dist::Groups& groups) {
  return groups.tp.rank() == 0 && groups.cp.rank() == 0 && groups.pp.rank() == groups.pp.size() - 1;
}

}  // namespace slimexx::train
