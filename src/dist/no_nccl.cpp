#include "slimexx/base/error.h"
#include "slimexx/dist/device_collective.h"

namespace slimexx::dist {

std::unique_ptr<Collective> make_device_collective(Collective&, tensor::Device) {
  throw Error(ErrorCode::kEnvironment,
              "this build has no NCCL, which is needed for several ranks on CUDA",
              "start one rank, use --device cpu, or build with -DSLX_WITH_CUDA=ON on a host with "
              "nccl.h and libnccl");
}

std::string device_collective_version() { return ""; }

}  // namespace slimexx::dist
