// Reads tensors of a store in the form that they have in a model folder.
#pragma once
#include <algorithm>
#include <cstdint>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"

namespace slimexx::model {

// Reads elements [begin, end) of a tensor, in its order on disk, as f32. Waits for the device.
inline void read_tensor(const ParameterStore& store, const TensorSource& tensor, int64_t begin,
                        int64_t end, float* values) {
  const auto ends_at = [](const TensorSource::Piece& piece) { return piece.on_disk + piece.size; };
  auto piece = std::ranges::upper_bound(tensor.pieces, begin, {}, ends_at);
  for (int64_t at = begin; at < end; ++piece) {
    SLX_CHECK(piece != tensor.pieces.end() && piece->on_disk <= at, "{} at {}", tensor.name, at);
    const int64_t stop = std::min(end, ends_at(*piece));
    store.read_weights(store.infos()[static_cast<size_t>(piece->parameter)],
                       piece->in_parameter + at - piece->on_disk, values + (at - begin), stop - at);
    at = stop;
  }
}

}  // namespace slimexx::model
