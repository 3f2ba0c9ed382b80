#include "slimexx/base/error.h"
#include "slimexx/dist/device_collective.h"

namespace slimexx::dist {

std::unique_ptr<Collective> make_device_collective(Collective&, tensor::Device) {
  throw Error(ErrorCode::kEnvironment, "this build has no NCCL, which several ranks on CUDA need",
              "start one rank, use --device cpu, or build with -DSLX_WITH_CUDA=ON where nccl.h and "
              "libnccl are installed");
}

std::string device_collective_version() { return ""; }

}  // namespace slimexx::dist
