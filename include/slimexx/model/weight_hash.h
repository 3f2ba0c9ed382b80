// Content hashes of weights: do two layouts hold the same model? The hash of a tensor is the sum
// over its elements of a function of the element's place on disk and its value as f32. So the
// hashes of boxes add up to that of the whole tensor, however a layout cuts it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimexx/model/layout.h"

namespace slimexx::model {

// Of each part of each of the store's parameters, in their order. Waits for the device.
std::vector<uint64_t> hash_parts(const ParameterStore& store);

using WeightHashes = std::map<std::string, uint64_t>;  // by tensor on disk
// The hashes of whole tensors from every rank's hash_parts. Of replicas one counts; throws
// Error(kCheck) naming tensor and ranks where replicas differ. SLX_CHECKs that every element is in
// one box of the layout. `holder` names the layout in the error.
WeightHashes sum_hashes(const Layout& layout, const std::vector<std::vector<uint64_t>>& by_rank,
                        const std::string& holder);
// One number for all of them.
uint64_t total_hash(const WeightHashes& hashes);

}  // namespace slimexx::model
