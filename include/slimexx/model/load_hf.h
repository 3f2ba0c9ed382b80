// Loads a Hugging Face folder with all ranks of a host together.
#pragma once
#include <cstdint>
#include <functional>

#include "slimexx/dist/collective.h"
#include "slimexx/model/layout.h"

namespace slimexx::model {

inline constexpr int64_t kLoadedElements = 1 << 22;

// Compares the folder's headers with the model; together, the ranks of `layout` hold all of its
// parameters. Error(kInput) lists missing, extra and misshapen tensors and types that cannot be
// read. Reads no values, so that a run can stop before it allocates memory for the weights.
void check_hf_headers(const ModelSpec& spec, const io::HfFolder& folder, const Layout& layout);

// The ranks of one host.
struct HostRanks {
  dist::Collective& ranks;  // on host memory
  Layout held;              // by rank of `ranks`
  // Elements per read and exchange. Besides its shard, a rank needs host memory for this many
  // elements (or one row, if that is longer): once as f32 and three times in the type on disk.
  int64_t piece_elements = kLoadedElements;
};

// Like load_hf_weights of parameters.h, but a host reads each byte once: if several ranks hold a
// box, each reads some of its rows and sends them to the others. Returns the bytes of tensors that
// this rank read. (A tied lm_head that is repeated on disk is read again for comparison. The scales
// of an FP8 tensor are read by every rank that holds values of it, and are not counted.) All ranks
// throw the same faults. Collective over host.ranks.
int64_t load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                        const std::function<void(int64_t)>& on_loaded, const Layout* layout,
                        const HostRanks& host);

}  // namespace slimexx::model
