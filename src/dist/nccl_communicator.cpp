#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/device_communicator.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::dist {
namespace {

// Who called, for messages.
struct Place {
  int rank = 0, size = 1;
  tensor::Device device;
  ncclComm_t comm = nullptr;
};

void check_nccl(ncclResult_t status, const char* call, const Place& place) {
  if (status == ncclSuccess) return;
  const char* detail = ncclGetLastError(place.comm);
  throw Error(ErrorCode::kRun,
              fmt::format("{} failed on rank {} of {}, {}: {}{}{}", call, place.rank, place.size,
                          tensor::to_string(place.device), ncclGetErrorString(status),
                          detail != nullptr && *detail != '\0' ? ": " : "",
                          detail != nullptr ? detail : ""),
              "run again with NCCL_DEBUG=WARN, and look at the other ranks' logs");
}

#define SLX_NCCL(call, place) check_nccl((call), #call, (place))

// Operations that NCCL runs as one. Left by an exception, it is closed all the same.
class Group {
 public:
  explicit Group(const Place& place) : place_(place) { SLX_NCCL(ncclGroupStart(), place_); }
  ~Group() {
    if (is_open_) ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    is_open_ = false;
    SLX_NCCL(ncclGroupEnd(), place_);
  }

 private:
  const Place& place_;
  bool is_open_ = true;
};

// Do the ranges follow one another, all of one size? Then NCCL has one operation for them.
bool are_equal_tiles(std::span<const Range> ranges) {
  for (size_t r = 0; r < ranges.size(); ++r) {
    if (ranges[r].size() != ranges[0].size()) return false;
    if (r > 0 && ranges[r].begin != ranges[r - 1].end) return false;
  }
  return true;
}

class NcclCommunicator : public DeviceCommunicator {
 public:
  NcclCommunicator(const Place& place, const ncclUniqueId& id, const DeviceExchangeOptions& options)
      : place_(place),
        whole_operations_(options.whole_operations || place.size != 2),
        num_exceptions_(std::uncaught_exceptions()) {
    tensor::select_device(place.device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (options.max_blocks > 0) config.maxCTAs = options.max_blocks;
    SLX_NCCL(ncclCommInitRankConfig(&place_.comm, place.size, id, place.rank, &config), place_);
  }
  ~NcclCommunicator() override {
    if (std::uncaught_exceptions() > num_exceptions_) {
      ncclCommAbort(place_.comm);
    } else {
      ncclCommDestroy(place_.comm);
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }

  void reduce_scatter_sum(tensor::Stream stream, tensor::Tensor data,
                          std::span<const Range> ranges) override {
    check_operands(stream, data, ranges);
    SLX_CHECK_EQ(static_cast<int>(ranges.size()), place_.size);
    SLX_CHECK(data.dtype() == tensor::DType::kF32, "sum of {}", data.shape_text());
    const auto part = [&](const Range& r) { return data.f32() + r.begin; };
    if (whole_operations_ && are_equal_tiles(ranges)) {
      SLX_NCCL(ncclReduceScatter(part(ranges[0]), part(ranges[own()]), count(ranges[0]), ncclFloat,
                                 ncclSum, place_.comm, queue(stream)),
               place_);
      return;
    }
    Group group(place_);
    for (int root = 0; root < place_.size; ++root) {
      const Range& r = ranges[static_cast<size_t>(root)];
      if (r.size() == 0) continue;
      SLX_NCCL(ncclReduce(part(r), part(r), count(r), ncclFloat, ncclSum, root, place_.comm,
                          queue(stream)),
               place_);
    }
    group.end();
  }

  void all_gather_ranges(tensor::Stream stream, tensor::Tensor data,
                         std::span<const Range> ranges) override {
    check_operands(stream, data, ranges);
    const int64_t width = tensor::dtype_bytes(data.dtype());
    const tensor::Tensor bytes(data.raw(), tensor::DType::kU8, data.device(),
                               {data.num_elements() * width});
    const auto num_ranks = static_cast<size_t>(place_.size);
    Group group(place_);
    for (size_t first = 0; first < ranges.size(); first += num_ranks) {
      std::vector<Range> part;
      for (const Range& r : ranges.subspan(first, num_ranks))
        part.push_back({r.begin * width, r.end * width});
      queue_gather(stream, bytes, part);
    }
    group.end();
  }

 private:
  static cudaStream_t queue(tensor::Stream stream) {
    return static_cast<cudaStream_t>(stream.handle);
  }
  static size_t count(const Range& range) { return static_cast<size_t>(range.size()); }
  size_t own() const { return static_cast<size_t>(place_.rank); }

  // Of one part of `bytes`, in an open group.
  void queue_gather(tensor::Stream stream, const tensor::Tensor& bytes,
                    std::span<const Range> ranges) const {
    const auto at = [&](const Range& r) { return bytes.data<char>() + r.begin; };
    if (whole_operations_ && are_equal_tiles(ranges)) {
      SLX_NCCL(ncclAllGather(at(ranges[own()]), at(ranges[0]), count(ranges[0]), ncclUint8,
                             place_.comm, queue(stream)),
               place_);
      return;
    }
    for (int root = 0; root < place_.size; ++root) {
      const Range& r = ranges[static_cast<size_t>(root)];
      if (r.size() == 0) continue;
      SLX_NCCL(ncclBroadcast(at(r), at(r), count(r), ncclUint8, root, place_.comm, queue(stream)),
               place_);
    }
  }

  // Also reports what went wrong since the last call, while NCCL ran by itself.
  void check_operands(tensor::Stream stream, const tensor::Tensor& data,
                      std::span<const Range> ranges) const {
    SLX_CHECK(stream.device == place_.device && data.device() == place_.device && stream.handle,
              "{}, stream of {}, communicator of {}", data.shape_text(),
              tensor::to_string(stream.device), tensor::to_string(place_.device));
    SLX_CHECK(data.num_dims() == 1 && data.is_contiguous(), "{}", data.shape_text());
    SLX_CHECK(!ranges.empty() && ranges.size() % static_cast<size_t>(place_.size) == 0,
              "{} ranges of {} ranks", ranges.size(), place_.size);
    for (const Range& r : ranges)
      SLX_CHECK(0 <= r.begin && r.begin <= r.end && r.end <= data.num_elements(),
                "range [{}, {}) of {}", r.begin, r.end, data.shape_text());
    ncclResult_t earlier = ncclSuccess;
    SLX_NCCL(ncclCommGetAsyncError(place_.comm, &earlier), place_);
    check_nccl(earlier, "an exchange under way", place_);
  }

  Place place_;
  bool whole_operations_;
  int num_exceptions_;
};

// The id that all of a group start from: made by its first rank, sent by the host communicator.
ncclUniqueId exchange_id(Communicator& host, std::span<const int> group, const Place& place) {
  std::string own;
  if (group[0] == host.rank()) {
    ncclUniqueId id;
    SLX_NCCL(ncclGetUniqueId(&id), place);
    own.assign(id.internal, sizeof(id.internal));
  }
  const std::string first = host.all_gather(own)[static_cast<size_t>(group[0])];
  ncclUniqueId id;
  SLX_CHECK_EQ(first.size(), sizeof(id.internal));
  std::memcpy(id.internal, first.data(), sizeof(id.internal));
  return id;
}

int64_t free_memory(tensor::Device device) {
  tensor::select_device(device);
  size_t free_bytes = 0, total_bytes = 0;
  SLX_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return static_cast<int64_t>(free_bytes);
}

// Sums to every rank and gathers the sums. NCCL connects devices and takes its buffers at first
// use: so that happens now, and a transport that garbles shows itself here.
void try_exchange(DeviceCommunicator& communicator, const Place& place) {
  constexpr int64_t kPart = 1024;
  const auto n = static_cast<size_t>(place.size * kPart);
  std::vector<Range> ranges;
  for (int r = 0; r < place.size; ++r) ranges.push_back({r * kPart, (r + 1) * kPart});
  const tensor::Buffer buffer(place.device, place.size * kPart * 4, "first exchange");
  const tensor::Tensor data = buffer.view(tensor::DType::kF32, {place.size * kPart});
  const tensor::Stream stream = tensor::compute_stream(place.device);
  std::vector<float> values(n, static_cast<float>(place.rank + 1));
  tensor::upload(stream, data, values.data());
  communicator.reduce_scatter_sum(stream, data, ranges);
  communicator.all_gather_ranges(stream, data, ranges);
  tensor::download(stream, values.data(), data);
  const auto want = static_cast<float>(place.size * (place.size + 1) / 2);
  for (size_t i = 0; i < n; ++i) {
    if (values[i] == want) continue;
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("NCCL gives wrong sums on rank {} of {}, {}: element {} is {} and not {}",
                    place.rank, place.size, tensor::to_string(place.device), i, values[i], want),
        "try NCCL_P2P_DISABLE=1, and look for peer-to-peer faults of this machine");
  }
}

}  // namespace

std::string device_communicator_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<DeviceCommunicator> make_device_communicator(Communicator& host,
                                                             std::span<const int> group,
                                                             tensor::Device device,
                                                             DeviceExchangeOptions options) {
  const auto self = std::find(group.begin(), group.end(), host.rank());
  SLX_CHECK(self != group.end() && std::is_sorted(group.begin(), group.end()), "group of {} ranks",
            group.size());
  SLX_CHECK(!device.is_cpu(), "NCCL on {}", tensor::to_string(device));
  // NVLink multicast stays off unless the user asks for it: not every host lets it be set up.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  const Place place{.rank = static_cast<int>(self - group.begin()),
                    .size = static_cast<int>(group.size()),
                    .device = device};
  const int64_t free_bytes = free_memory(device);
  auto communicator =
      std::make_unique<NcclCommunicator>(place, exchange_id(host, group, place), options);
  try_exchange(*communicator, place);
  // What an earlier communicator gives back late would make it less than nothing.
  const int64_t held_bytes = std::max<int64_t>(0, free_bytes - free_memory(device));
  log_info("{} exchanges between {} rank(s), one device each; it holds {} MiB of each device",
           device_communicator_version(), place.size, held_bytes >> 20);
  return communicator;
}

}  // namespace slimexx::dist
