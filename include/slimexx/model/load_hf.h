// Loading a Hugging Face folder by all ranks of a host together.
#pragma once
#include <cstdint>
#include <functional>

#include "slimexx/dist/collective.h"
#include "slimexx/model/layout.h"

namespace slimexx::model {

inline constexpr int64_t kLoadedElements = 1 << 22;

// Compares the folder's headers with the model, of which `layout` holds everything: Error(kInput)
// lists missing, extra and misshapen tensors and types that cannot be read. It reads no values, so
// that a run can stop before it takes memory for the weights.
void check_hf_headers(const ModelSpec& spec, const io::HfFolder& folder, const Layout& layout);

// The ranks of one host.
struct HostRanks {
  dist::Collective& ranks;  // on host memory
  Layout held;              // by rank of `ranks`
  // Elements that are read, and passed on, at once. Beside its shard a rank holds so many of them
  // (or a row, if that is longer) in host memory: once as f32 and three times as they are on disk.
  int64_t piece_elements = kLoadedElements;
};

// load_hf_weights of parameters.h, read once for all ranks of a host: of a box that several of them
// hold each reads some rows and sends them to the others. Returns the bytes of tensors that this
// rank read; those of all ranks are what the host needs, each byte once. (A tied lm_head that is
// repeated on disk is read once more, to compare it. Every rank that holds some values of an FP8
// tensor reads its scales, which are not counted.) All ranks throw the same faults. Collective over
// host.ranks.
int64_t load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                        const std::function<void(int64_t)>& on_loaded, const Layout* layout,
                        const HostRanks& host);

}  // namespace slimexx::model
