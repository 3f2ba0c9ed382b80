#include "slimexx/dist/peer_memory.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "dist/process_state.h"
#include "slimexx/base/log.h"
#include "slimexx/kernels/peers.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

// What a rank tells the others of its window.
struct Record {
  cudaIpcMemHandle_t handle;
  uint64_t space;  // of processes that see each other
  int64_t process;
  int64_t device;
  char* window;  // in its process
};

Record describe(const tensor::Buffer& window) {
  Record record{};
  record.space = std::hash<std::string>()(process_space());
  record.process = ::getpid();
  record.device = window.device().index;
  record.window = static_cast<char*>(window.data());
  SLX_CUDA(cudaIpcGetMemHandle(&record.handle, window.data()));
  return record;
}

// Null if the window cannot be reached; the error is not left to the next call.
char* reach(const Record& record, const Record& own, std::vector<void*>& opened) {
  if (record.space != own.space) return nullptr;
  if (record.process == own.process) {
    if (record.device == own.device) return record.window;
    const cudaError_t error = cudaDeviceEnablePeerAccess(static_cast<int>(record.device), 0);
    cudaGetLastError();
    const bool is_reached = error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
    return is_reached ? record.window : nullptr;
  }
  void* window = nullptr;
  const cudaError_t error =
      cudaIpcOpenMemHandle(&window, record.handle, cudaIpcMemLazyEnablePeerAccess);
  cudaGetLastError();
  if (error != cudaSuccess) return nullptr;
  opened.push_back(window);
  return static_cast<char*>(window);
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(Collective& group, int64_t size_bytes) {
  if (group.size() == 1 || group.size() > kernels::kMostPeers) return nullptr;
  const tensor::Device device = group.device();
  const tensor::Stream stream = tensor::compute_stream(device);
  std::unique_ptr<PeerMemory> memory(new PeerMemory(group));
  memory->size_bytes_ = size_bytes;
  memory->window_ = tensor::Buffer(device, memory_bytes(size_bytes), "peer memory");
  memory->cancelled_ = tensor::StagingBuffer(device, sizeof(int), "peer memory");
  const Record own = describe(memory->window_);
  constexpr auto kRecordBytes = static_cast<int64_t>(sizeof(Record));
  const tensor::Buffer shared(device, (group.size() + 1) * kRecordBytes + 256, "peer memory");
  const Tensor all = shared.view(DType::kU8, {group.size(), kRecordBytes}, 256);
  const Tensor mine = shared.view(DType::kU8, {1, kRecordBytes}, 256 + group.size() * kRecordBytes);
  tensor::upload(stream, mine, &own);
  group.all_gather(stream, all, mine);
  std::vector<char> records(static_cast<size_t>(all.size_bytes()));
  tensor::download(stream, records.data(), all);
  // All have it or none.
  float fails = memory->open_windows(records) ? 0 : 1;
  const Tensor flag = shared.view(DType::kF32, {1});
  tensor::upload(stream, flag, &fails);
  tensor::Arena scratch(device, 4096, "peer memory");
  group.all_reduce_max(stream, scratch, flag);
  tensor::download(stream, &fails, flag);
  group.barrier();
  if (fails == 0) return memory;
  if (group.rank() == 0)
    log_info("ranks do not reach each other's memory: counts of experts' rows go by the host");
  return nullptr;
}

bool PeerMemory::open_windows(std::span<const char> records) {
  std::vector<Record> all(records.size() / sizeof(Record));
  std::memcpy(all.data(), records.data(), records.size());
  const Record& own = all[static_cast<size_t>(rank())];
  int64_t num_sharing = 0;
  for (const Record& record : all) {
    windows_.push_back(reach(record, own, opened_));
    if (windows_.back() == nullptr) return false;
    if (record.process == own.process && record.device == own.device) ++num_sharing;
  }
  kernels_wait_ = num_sharing == 1;
  return kernels_wait_ || num_sharing == size();
}

PeerMemory::~PeerMemory() {
  for (void* window : opened_) cudaIpcCloseMemHandle(window);
}

void PeerMemory::cancel() noexcept {
  if (cancelled_.data() != nullptr) *reinterpret_cast<volatile int*>(cancelled_.data()) = 1;
}

void PeerMemory::meet() const { group_.barrier(); }

}  // namespace slimexx::dist
