// A small checkpoint with known bytes.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>

#include <string>
#include <vector>

#include "io/checkpoint/manifest.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {

// Four tensors in two sections, one of them empty. Byte i of a tensor is a function of the tensor's
// name, its section and i.
inline const std::vector<CheckpointTensor> kSavedTensors = {
    {"weights", "embed", tensor::DType::kBF16, {10, 7}},
    {"weights", "norm", tensor::DType::kF32, {7}},
    {"master", "embed", tensor::DType::kF32, {10, 7}},
    {"weights", "nothing", tensor::DType::kF32, {0, 3}},
};

inline std::string bytes_of(const CheckpointTensor& t) {
  std::string bytes(size_t(t.num_elements() * tensor::dtype_bytes(t.dtype)), '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = char(i * 7 + t.name.size() + t.section.size());
  return bytes;
}

struct SavedModel {
  std::vector<std::string> data;
  SavedModel() {
    for (const auto& t : kSavedTensors) data.push_back(bytes_of(t));
  }
  CheckpointPiece piece(size_t t, int64_t begin, int64_t end) const {
    return {kSavedTensors[t].section, kSavedTensors[t].name, begin, end,
            data[t].data() + begin * tensor::dtype_bytes(kSavedTensors[t].dtype)};
  }
  // Rank r of n holds the r-th part of every tensor.
  ShardInfo write(const std::string& directory, int rank, int ranks) const {
    std::vector<CheckpointPiece> pieces;
    for (size_t t = 0; t < kSavedTensors.size(); ++t) {
      const int64_t n = kSavedTensors[t].num_elements();
      pieces.push_back(piece(t, n * rank / ranks, n * (rank + 1) / ranks));
    }
    return write_shard(directory, rank, ranks, kSavedTensors, pieces);
  }
  void save(const std::string& directory, int ranks, const Json& state = Json::object()) const {
    std::vector<ShardInfo> shards;
    for (int r = 0; r < ranks; ++r)
      shards.push_back(shard_from_json(shard_to_json(write(directory, r, ranks))));
    write_manifest(directory, shards, state);
  }
  void expect_in(const Checkpoint& checkpoint) const {
    ASSERT_EQ(checkpoint.tensors().size(), kSavedTensors.size());
    for (size_t t = 0; t < kSavedTensors.size(); ++t) {
      std::string read(data[t].size(), '\0');
      checkpoint.read(kSavedTensors[t].section, kSavedTensors[t].name, 0,
                      kSavedTensors[t].num_elements(), read.data());
      EXPECT_EQ(read, data[t]) << kSavedTensors[t].section << '/' << kSavedTensors[t].name;
    }
  }
};

}  // namespace slimexx::io
