// Tests that a rank that loads a Hugging Face folder holds only its shard and one piece in host
// memory, for any tensor size and number of ranks. This program counts the allocations of each
// thread.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/load_hf.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/tensor/tensor.h"

namespace {

thread_local int64_t live_bytes = 0, peak_bytes = 0;

void* count_new(std::size_t size, std::size_t alignment) {
  void* data = alignment == 0
                   ? std::malloc(size)
                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<int64_t>(malloc_usable_size(data));
  peak_bytes = std::max(peak_bytes, live_bytes);
  return data;
}

void count_delete(void* data) noexcept {
  if (data == nullptr) return;
  live_bytes -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

}  // namespace

void* operator new(std::size_t size) { return count_new(size, 0); }
void* operator new[](std::size_t size) { return count_new(size, 0); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return count_new(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return count_new(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return count_new(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return count_new(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { count_delete(data); }
void operator delete[](void* data) noexcept { count_delete(data); }
void operator delete(void* data, std::size_t) noexcept { count_delete(data); }
void operator delete[](void* data, std::size_t) noexcept { count_delete(data); }
void operator delete(void* data, std::align_val_t) noexcept { count_delete(data); }
void operator delete[](void* data, std::align_val_t) noexcept { count_delete(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { count_delete(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { count_delete(data); }

namespace slimexx::model {
namespace {

constexpr int64_t kRows = 2048, kColumns = 512, kPieceElements = 4096;
constexpr int64_t kBytesOnDisk = 2;                   // BF16
constexpr int64_t kBytesOfLists = int64_t{64} << 10;  // names, shapes and boxes of four tensors

ParameterInfo whole_matrix(const char* name, int64_t rows, int64_t columns,
                           std::vector<Shard> shards) {
  return {.name = name,
          .shape = {rows, columns},
          .shards = std::move(shards),
          .parts = {{.name = name, .shape = {rows, columns}}}};
}

// One tensor split by rows, one by columns, and a small replicated one.
std::vector<ParameterInfo> loaded_parameters() {
  return {whole_matrix("up", kRows, kColumns, {{.axis = 0}}),
          whole_matrix("down", kColumns, kRows, {{.axis = 1}}),
          whole_matrix("router", 16, kColumns, {})};
}

constexpr int64_t kElements = 2 * kRows * kColumns + 16 * kColumns;

float value_at(int64_t element) { return static_cast<float>(element % 251); }

class LoadMemory : public testing::Test {
 protected:
  LoadMemory() {
    std::filesystem::create_directory(dir_.file("template"));
    dir_.put("template/config.json", "{}");
    std::vector<io::HfTensor> tensors;
    for (const ParameterInfo& info : loaded_parameters())
      tensors.push_back(
          {info.name, tensor::DType::kBF16, info.shape, [](int64_t begin, int64_t end, void* out) {
             std::vector<float> values;
             for (int64_t i = begin; i < end; ++i) values.push_back(value_at(i));
             tensor::convert_elements(tensor::DType::kF32, values.data(), tensor::DType::kBF16, out,
                                      end - begin);
           }});
    io::write_hf_folder(dir_.file("hf"), tensors,
                        {.template_directory = dir_.file("template"), .shards = {}});
  }

  // Loads on num_ranks ranks; returns the bytes that all of them read.
  int64_t load(int num_ranks, const dist::GridSizes& sizes) const {
    const Layout layout = make_layout({loaded_parameters()}, dist::GridShape(num_ranks, sizes));
    constexpr int64_t kPieceBytes = kPieceElements * (4 + 3 * kBytesOnDisk);
    std::mutex mutex;
    int64_t read_bytes = 0;
    dist::run_thread_ranks(num_ranks, [&](dist::Collective& world) {
      const auto folder = io::HfFolder::open(dir_.file("hf"));
      ParameterStore store(*layout.ranks[static_cast<size_t>(world.rank())], {}, false);
      const HostRanks host{world, layout, kPieceElements};
      world.barrier();
      const int64_t num_buffers = tensor::allocation_counters({}).num_allocations;
      peak_bytes = live_bytes;
      const int64_t before = live_bytes;
      const int64_t read = load_hf_weights(store, {}, folder, {}, &layout, host);
      const int64_t peak = peak_bytes - before;
      world.barrier();
      const std::lock_guard lock(mutex);
      read_bytes += read;
      EXPECT_LE(peak, kPieceBytes + kBytesOfLists)
          << "rank " << world.rank() << " of " << num_ranks;
      EXPECT_GE(peak, kPieceElements * 4) << "nothing was counted";
      EXPECT_EQ(tensor::allocation_counters({}).num_allocations, num_buffers);
      // The shard: a share of the split tensors and all of the replicated one.
      EXPECT_EQ(store.num_elements(), (kElements - 16 * kColumns) / sizes.tp + 16 * kColumns);
      expect_values(store);
    });
    return read_bytes;
  }

  static void expect_values(const ParameterStore& store) {
    for (const ParameterInfo& info : store.infos()) {
      std::vector<float> held(static_cast<size_t>(info.num_elements()));
      store.read_weights(info, 0, held.data(), info.num_elements());
      for (const ElementRun& run : list_runs(info))
        for (int64_t i = 0; i < run.size; i += 509)
          ASSERT_EQ(held[static_cast<size_t>(run.in_parameter + i)], value_at(run.on_disk + i))
              << info.name << ", element " << run.on_disk + i;
    }
  }

  io::TempDir dir_;
};

TEST_F(LoadMemory, OfShardsIsTheShardAndOnePiece) {
  for (const int ranks : {1, 2, 4})
    EXPECT_EQ(load(ranks, {.tp = ranks}), kElements * kBytesOnDisk) << ranks << " ranks";
}

// Each replica reads a share for all replicas.
TEST_F(LoadMemory, OfReplicasIsTheModelAndOnePiece) {
  for (const int ranks : {2, 4})
    EXPECT_EQ(load(ranks, {}), kElements * kBytesOnDisk) << ranks << " ranks";
}

}  // namespace
}  // namespace slimexx::model
