// Content hashes of weights, to check that two layouts hold the same model. The hash of a tensor is
// the sum over its elements of a function of the element's place on disk and its value as f32. So
// the hashes of boxes add up to the hash of the whole tensor for every sharding.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimexx/model/layout.h"

namespace slimexx::model {

// The hash of each part of each parameter in the store, in the order of list_moved (encoding.h):
// encoded parameters by their values and scales. Waits for the device.
std::vector<uint64_t> hash_parts(const ParameterStore& store);

using WeightHashes = std::map<std::string, uint64_t>;  // by tensor on disk
// The hashes of whole tensors from every rank's hash_parts. Replicas are counted once; if they
// differ, throws Error(kCheck) naming tensor and ranks. SLX_CHECKs that every element is in exactly
// one box of the layout. `holder` names the layout in the error.
WeightHashes sum_hashes(const Layout& layout, const std::vector<std::vector<uint64_t>>& by_rank,
                        const std::string& holder);
// One number for all hashes.
uint64_t total_hash(const WeightHashes& hashes);

}  // namespace slimexx::model
