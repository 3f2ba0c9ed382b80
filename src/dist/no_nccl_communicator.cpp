#include "slimexx/base/error.h"
#include "slimexx/dist/device_communicator.h"

namespace slimexx::dist {

std::unique_ptr<DeviceCommunicator> make_device_communicator(Communicator&, std::span<const int>,
                                                             tensor::Device,
                                                             DeviceExchangeOptions) {
  throw Error(ErrorCode::kEnvironment, "this build has no NCCL, which several ranks on CUDA need",
              "start one rank, use --device cpu, or build with -DSLX_WITH_CUDA=ON where nccl.h and "
              "libnccl are installed");
}

std::string device_communicator_version() { return ""; }

}  // namespace slimexx::dist
