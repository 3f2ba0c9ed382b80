// What ranks exchange in device memory, over NCCL: one rank per device. Operations are queued on
// the stream they are given and return before they are done; all ranks of the group call alike, in
// the same order. The order in which NCCL adds depends on sizes and ranks alone, never on timing:
// the same calls give the same bits, but not the sum in rank order (numerics contract, N6), so it
// serves gradients and copies. A failed call throws Error(kRun) naming the call, the rank and the
// device.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slimexx/dist/communicator.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::dist {

class DeviceCommunicator {
 public:
  // Destroyed by a passing exception, it cancels what is queued: nobody waits for a rank that
  // failed.
  virtual ~DeviceCommunicator() = default;
  virtual int rank() const = 0;  // in the group
  virtual int size() const = 0;
  // data[n] f32. After it, data[ranges[rank]] holds the sum over ranks, and the rest is as it was.
  // Ranges are disjoint and may be unequal or empty: with all empty but one this reduces to a rank.
  virtual void reduce_scatter_sum(tensor::Stream stream, tensor::Tensor data,
                                  std::span<const Range> ranges) = 0;
  // data[n] of any type. Each rank contributes data[ranges[rank]]; after it all have all ranges.
  // Of several parts at once, [part * size() + rank]: together they are faster than one by one.
  virtual void all_gather_ranges(tensor::Stream stream, tensor::Tensor data,
                                 std::span<const Range> ranges) = 0;
};

struct DeviceExchangeOptions {
  // How many thread blocks, and so multiprocessors, an exchange may take from what else the device
  // computes; 0 leaves it to NCCL (and to NCCL_MAX_CTAS).
  int max_blocks = 0;
  // NCCL's reduce-scatter and all-gather wherever ranges are of one size. As it stands, two ranks
  // get a reduction and a broadcast for each range, which are 1.1 to 1.35 times as fast.
  bool whole_operations = false;
};

// Collective over `host`. `group` are the ranks of `host` that exchange with each other, ascending,
// this one among them, as ProcessGrid::data_parallel_group lists them; groups do not overlap. Makes
// one exchange to see that the devices reach each other. Throws Error(kEnvironment) in a build
// without NCCL.
std::unique_ptr<DeviceCommunicator> make_device_communicator(Communicator& host,
                                                             std::span<const int> group,
                                                             tensor::Device device,
                                                             DeviceExchangeOptions options = {});
// "NCCL 2.28.9", of the library that is loaded; empty in a build without.
std::string device_communicator_version();

}  // namespace slimexx::dist
