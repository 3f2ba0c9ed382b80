// The ranks of a check program: streams of one device, whose kernels run concurrently.
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/ranks/peer_barrier.cuh"
#include "slimexx/kernels/peers.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

inline constexpr int64_t kRegionBytes = 40 << 20;

class Ranks {
 public:
  explicit Ranks(int size) : size_(size) {
    SLX_CUDA(cudaMallocHost(&cancelled_, sizeof(int)));
    *cancelled_ = 0;
    for (int r = 0; r < size; ++r) {
      controls_.emplace_back(kPeerControlBytes);
      controls_.back().set_bytes(0);
      regions_.emplace_back(kRegionBytes);
      SLX_CUDA(cudaStreamCreateWithFlags(&streams_[r], cudaStreamNonBlocking));
    }
  }
  ~Ranks() {
    for (int r = 0; r < size_; ++r) cudaStreamDestroy(streams_[r]);
    cudaFreeHost(cancelled_);
  }

  int size() const { return size_; }
  char* region(int rank) const { return regions_[rank].data(); }
  cudaStream_t stream(int rank) const { return streams_[rank]; }
  PeerRegions regions(int rank) const {
    PeerRegions ranks;
    for (int r = 0; r < size_; ++r) {
      ranks.control[r] = controls_[r].data();
      ranks.region[r] = regions_[r].data();
    }
    ranks.rank = rank;
    ranks.size = size_;
    ranks.cancelled = cancelled_;
    return ranks;
  }
  // Sets the counters to their values after `meetings` barriers of launches, barriers of thread
  // blocks and low-latency calls.
  void start_after(unsigned meetings) {
    const uint64_t begun = meetings & ((1u << peers::kCallBits) - 1);
    std::vector<char> words(kPeerControlBytes);
    const auto set = [&](size_t at, unsigned value) { std::memcpy(&words[at], &value, 4); };
    set(peers::kEpochAt, meetings);
    for (int r = 0; r < size_; ++r) set(peers::kFlagsAt + 4 * static_cast<size_t>(r), meetings);
    peers::BlockControl block{};
    for (int r = 0; r < size_; ++r) {
      block.begun[r] = begun;
      block.ended[r] = meetings;
    }
    block.calls = block.mails = meetings;
    for (int b = 0; b < peers::kMostPeerBlocks; ++b)
      std::memcpy(&words[peers::kBlocksAt + b * sizeof block], &block, sizeof block);
    for (const auto& control : controls_)
      SLX_CUDA(cudaMemcpy(control.data(), words.data(), words.size(), cudaMemcpyHostToDevice));
  }
  // Waits until copies and fills are complete: the streams of the ranks do not wait for them.
  void begin() { SLX_CUDA(cudaDeviceSynchronize()); }
  // Cancels the kernels after a minute, so that a hang fails the check.
  void wait() {
    std::atomic<bool> is_done = false;
    std::thread watch([&] {
      for (int tenths = 0; tenths < 600 && !is_done; ++tenths)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (!is_done) *static_cast<volatile int*>(cancelled_) = 1;
    });
    SLX_CUDA(cudaDeviceSynchronize());
    is_done = true;
    watch.join();
    expect_status("ranks meet", *cancelled_ == 0 ? cudaSuccess : cudaErrorTimeout, cudaSuccess);
  }

 private:
  int size_;
  std::vector<DeviceArray<char>> controls_, regions_;
  cudaStream_t streams_[kMostPeers] = {};
  int* cancelled_ = nullptr;
};

}  // namespace slimexx::kernels::testing
