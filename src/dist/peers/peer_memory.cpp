#include "slimexx/dist/peer_memory.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "dist/watch/process_state.h"
#include "slimexx/base/check.h"
#include "slimexx/base/log.h"
#include "slimexx/kernels/limits.h"
#include "slimexx/tensor/cuda_check.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

// Description of a rank's memory for the others.
struct Record {
  struct Allocation {
    cudaIpcMemHandle_t handle;
    char* memory;  // address in that process
  };
  Allocation control, region;
  uint64_t space;  // hash of process_space()
  int64_t process;
  int64_t device;
};

Record::Allocation describe(void* memory) {
  Record::Allocation allocation{};
  allocation.memory = static_cast<char*>(memory);
  SLX_CUDA(cudaIpcGetMemHandle(&allocation.handle, memory));
  return allocation;
}

bool share_process(const Record& a, const Record& b) {
  return a.space == b.space && a.process == b.process;
}
bool share_device(const Record& a, const Record& b) {
  return share_process(a, b) && a.device == b.device;
}

// Enables peer access to a device of this process. Clears CUDA's last error, so that the next call
// does not report it.
bool reach_device(int64_t device) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(static_cast<int>(device), 0);
  cudaGetLastError();
  return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
}

// Maps another process's memory; null on failure.
char* open_memory(const Record::Allocation& allocation, std::vector<void*>& opened) {
  void* memory = nullptr;
  const cudaError_t error =
      cudaIpcOpenMemHandle(&memory, allocation.handle, cudaIpcMemLazyEnablePeerAccess);
  cudaGetLastError();
  if (error != cudaSuccess) return nullptr;
  opened.push_back(memory);
  return static_cast<char*>(memory);
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(Collective& group, const Tensor& region) {
  if (group.size() == 1 || group.size() > kernels::kMostPeers || tensor::is_planning())
    return nullptr;
  const tensor::Device device = group.device();
  const tensor::Stream stream = tensor::compute_stream(device);
  std::unique_ptr<PeerMemory> memory(new PeerMemory(group));
  memory->region_ = region;
  memory->control_ = tensor::Buffer(device, kControlBytes, "peer memory");
  memory->cancelled_ = tensor::StagingBuffer(device, sizeof(int), "peer memory");
  Record own{};
  own.control = describe(memory->control_.data());
  own.region = describe(region.raw());
  own.space = std::hash<std::string>()(process_space());
  own.process = ::getpid();
  own.device = device.index;

  constexpr auto kRecordBytes = static_cast<int64_t>(sizeof(Record));
  const tensor::Buffer shared(device, 256 + (group.size() + 1) * kRecordBytes, "peer memory");
  const Tensor all = shared.view(DType::kU8, {group.size(), kRecordBytes}, 256);
  const Tensor mine = shared.view(DType::kU8, {1, kRecordBytes}, 256 + group.size() * kRecordBytes);
  tensor::upload(stream, mine, &own);
  group.all_gather(stream, all, mine);
  std::vector<char> records(static_cast<size_t>(all.size_bytes()));
  tensor::download(stream, records.data(), all);

  float fails = memory->open(records) ? 0 : 1;  // either all ranks use peer memory or none
  const Tensor flag = shared.view(DType::kF32, {1});
  tensor::upload(stream, flag, &fails);
  tensor::Arena scratch(device, 4096, "peer memory");
  group.all_reduce_max(stream, scratch, flag);
  tensor::download(stream, &fails, flag);
  group.barrier();
  if (fails == 0) {
    group.peer_memories_.push_back(memory.get());
    return memory;
  }
  if (group.rank() == 0)
    log_info("ranks of {} cannot access each other's memory: they communicate by messages",
             group.name_.text());
  return nullptr;
}

bool PeerMemory::open(std::span<const char> records) {
  std::vector<Record> all(records.size() / sizeof(Record));
  std::memcpy(all.data(), records.data(), records.size());
  const Record& own = all[static_cast<size_t>(rank())];
  int num_sharing = 0;
  for (const Record& record : all) {
    num_sharing += share_device(record, own) ? 1 : 0;
    if (record.space != own.space) return false;
    if (share_process(record, own)) {
      if (!share_device(record, own) && !reach_device(record.device)) return false;
      controls_.push_back(record.control.memory);
      regions_.push_back(record.region.memory);
      continue;
    }
    controls_.push_back(open_memory(record.control, opened_));
    regions_.push_back(open_memory(record.region, opened_));
    if (controls_.back() == nullptr || regions_.back() == nullptr) return false;
  }
  kernels_wait_ = num_sharing == 1;
  return kernels_wait_ || num_sharing == size();
}

PeerMemory::~PeerMemory() {
  std::erase(group_.peer_memories_, this);
  for (void* memory : opened_) cudaIpcCloseMemHandle(memory);
}

bool PeerMemory::holds(const Tensor& own) const {
  const int64_t at = own.data<char>() - region_.data<char>();
  return at >= 0 && at + own.size_bytes() <= region_.size_bytes();
}

int64_t PeerMemory::place_of(const Tensor& own) const {
  if (own.num_elements() == 0) return 0;
  SLX_CHECK(holds(own), "{} is not in the region of {} bytes", own.shape_text(),
            region_.size_bytes());
  return own.data<char>() - region_.data<char>();
}

void PeerMemory::cancel() noexcept {
  if (cancelled_.data() != nullptr) *reinterpret_cast<volatile int*>(cancelled_.data()) = 1;
}

void PeerMemory::meet() const { group_.barrier(); }

}  // namespace slimexx::dist
