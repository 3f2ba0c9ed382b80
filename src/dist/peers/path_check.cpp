#include "dist/peers/path_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::dist {
namespace {

using tensor::DType;

struct Decision {
  int64_t number = 0, by_kernels = 0, size_bytes = 0;
  bool operator==(const Decision&) const = default;
};

int64_t read_interval() {
  const char* text = std::getenv("SLX_CHECK_PATHS");
  return text != nullptr ? std::max(std::atoll(text), 0LL) : 0;
}

std::string text_of(size_t rank, const Decision& d) {
  return fmt::format("rank {} is at call {} with {} bytes by {}", rank, d.number, d.size_bytes,
                     d.by_kernels != 0 ? "kernels" : "messages");
}

}  // namespace

void check_path(Backend& backend, tensor::Stream stream, const ShortName& group, bool by_kernels,
                int64_t size_bytes) {
  static const int64_t interval = read_interval();
  if (interval == 0 || tensor::is_recording(stream)) return;
  if (++backend.num_path_decisions % interval != 0) return;
  constexpr int64_t kBytes = sizeof(Decision);
  const auto ranks = static_cast<size_t>(backend.size()), own = static_cast<size_t>(backend.rank());
  std::vector<Decision> decisions(ranks);
  decisions[own] = {backend.num_path_decisions, by_kernels ? 1 : 0, size_bytes};
  std::vector<Range> ranges;
  for (int64_t r = 0; r < backend.size(); ++r) ranges.push_back({r * kBytes, (r + 1) * kBytes});
  const tensor::Buffer buffer(backend.device(), std::ssize(decisions) * kBytes, "check of paths");
  const tensor::Tensor all = buffer.view(DType::kU8, {buffer.size_bytes()});
  tensor::upload(stream, all, decisions.data());
  backend.all_gather_ranges(stream, static_cast<char*>(all.raw()), ranges);
  tensor::download(stream, decisions.data(), all);
  for (size_t r = 1; r < ranks; ++r)
    if (decisions[r] != decisions[0])
      throw Error(ErrorCode::kCheck,
                  fmt::format("ranks of group {} disagree about a collective call: {}, {}",
                              group.text(), text_of(0, decisions[0]), text_of(r, decisions[r])),
                  "the tensors of a call must be in shared memory on all ranks or on none");
}

}  // namespace slimexx::dist
