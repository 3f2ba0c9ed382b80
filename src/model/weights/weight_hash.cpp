#include "slimexx/model/weight_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/encoding.h"

namespace slimexx::model {
namespace {

constexpr int64_t kHashedElements = 1 << 22;  // elements per read
constexpr int64_t kHashedAtOnce = 1 << 14;    // elements per thread

uint64_t mix(uint64_t x) {  // splitmix64's finalizer
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// Hash of consecutive values. It is a sum over elements, so any order gives the same result.
uint64_t hash_run(const float* values, int64_t position, int64_t size) {
  std::atomic<uint64_t> sum{0};
  parallel_for(size, kHashedAtOnce, [&](int64_t begin, int64_t end) {
    uint64_t own = 0;
    for (int64_t i = begin; i < end; ++i)
      own += mix(mix(static_cast<uint64_t>(position + i) + 0x9E3779B97F4A7C15u) ^
                 std::bit_cast<uint32_t>(values[i]));
    sum.fetch_add(own, std::memory_order_relaxed);
  });
  return sum;
}

// A box with the first rank that holds it, and its hash.
struct HashedBox {
  tensor::Box box;
  size_t rank = 0;
  uint64_t hash = 0;
};
struct HashedTensor {
  std::vector<int64_t> shape;
  std::vector<HashedBox> boxes;
};

void add_box(HashedTensor& tensor, HashedBox added, const std::string& name,
             const std::string& holder) {
  const auto same = std::ranges::find(tensor.boxes, added.box, &HashedBox::box);
  if (same == tensor.boxes.end()) {
    tensor.boxes.push_back(std::move(added));
  } else if (same->hash != added.hash) {
    throw Error(ErrorCode::kCheck,
                fmt::format("{}: ranks {} and {} hold different values of {}", holder, same->rank,
                            added.rank, name),
                "this is a bug in slimexx; please report it: all copies of a weight must be equal",
                name);
  }
}

}  // namespace

namespace {

// Appends the hashes of the parts of one parameter.
void append_hashes(const ParameterStore& store, const ParameterInfo& info,
                   std::vector<float>& values, std::vector<uint64_t>& hashes) {
  const size_t first_part = hashes.size();
  hashes.resize(first_part + info.parts.size(), 0);
  for (int64_t begin = 0; begin < info.num_elements(); begin += kHashedElements) {
    const int64_t end = std::min(begin + kHashedElements, info.num_elements());
    values.resize(static_cast<size_t>(end - begin));
    store.read_weights(info, begin, values.data(), end - begin);
    for (const ElementRun& run : list_runs(info, begin, end)) {
      const float* first = values.data() + (run.in_parameter - begin);
      hashes[first_part + run.part] += hash_run(first, run.on_disk, run.size);
    }
  }
}

}  // namespace

std::vector<uint64_t> hash_parts(const ParameterStore& store) {
  std::vector<uint64_t> hashes;
  std::vector<float> values;
  for (const ParameterInfo& info : store.infos())
    if (!info.encoding) append_hashes(store, info, values, hashes);
  for (const ParameterInfo& info : store.derived()) append_hashes(store, info, values, hashes);
  return hashes;
}

WeightHashes sum_hashes(const Layout& layout, const std::vector<std::vector<uint64_t>>& by_rank,
                        const std::string& holder) {
  SLX_CHECK_EQ(by_rank.size(), layout.ranks.size());
  const Layout moved = list_moved(layout);
  std::map<std::string, HashedTensor> tensors;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    size_t at = 0;
    for (const ParameterInfo& info : *moved.ranks[rank]) {
      for (const HfPart& part : info.parts) {
        SLX_CHECK_LT(at, by_rank[rank].size());
        HashedTensor& tensor = tensors[part.name];
        tensor.shape = part.shape;
        tensor::Box box{part.begin, part.begin};
        for (size_t d = 0; d < box.end.size(); ++d) box.end[d] += part.size[d];
        add_box(tensor, {std::move(box), rank, by_rank[rank][at++]}, part.name, holder);
      }
    }
    SLX_CHECK_EQ(at, by_rank[rank].size());
  }
  WeightHashes sum;
  for (const auto& [name, tensor] : tensors) {
    std::vector<tensor::Box> boxes;
    for (const HashedBox& hashed : tensor.boxes) {
      boxes.push_back(hashed.box);
      sum[name] += hashed.hash;
    }
    SLX_CHECK(tensor::cover_exactly(tensor.shape, boxes), "{}", name);
  }
  return sum;
}

uint64_t total_hash(const WeightHashes& hashes) {
  uint64_t total = 0;
  for (const auto& [name, hash] : hashes) {  // in the order of the names
    for (const char c : name) total = mix(total + static_cast<unsigned char>(c));
    total = mix(total ^ hash);
  }
  return total;
}

}  // namespace slimexx::model
