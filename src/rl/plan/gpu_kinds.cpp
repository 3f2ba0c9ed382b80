#include <fmt/format.h>

#include "slimexx/base/error.h"
#include "slimexx/rl/plan.h"

namespace slimexx::rl {

const tensor::DeviceKind& find_gpu_kind(const std::string& name) {
  if (const tensor::DeviceKind* kind = tensor::find_device_kind(name)) return *kind;
  std::string known;
  for (const tensor::DeviceKind& kind : tensor::list_device_kinds())
    known += (known.empty() ? "" : ", ") + kind.name;
  throw Error(ErrorCode::kUsage, fmt::format("\"{}\" is not a GPU that plan knows", name), known,
              "--gpu");
}

}  // namespace slimexx::rl
