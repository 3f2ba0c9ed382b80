// Input: a whole safetensors file. Accepted headers must describe ranges inside the file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "io/safetensors/safetensors_header.h"
#include "slimexx/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slimexx;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const uint64_t length = io::parse_header_length(file.substr(0, 9), size, "input");
    const std::string_view json = file.substr(8, length);
    const uint64_t data_bytes = size - 8 - length;
    auto header = io::parse_safetensors_header(json, data_bytes, "input");
    uint64_t position = 0;
    for (const auto& e : header.entries) {
      const auto bytes = static_cast<uint64_t>(e.num_elements() * tensor::dtype_bytes(e.dtype));
      if (e.begin < position || e.end - e.begin != bytes || e.end > data_bytes) std::abort();
      position = e.end;
    }
    // Accepted headers survive writing and reading.
    auto entries = header.entries;
    const std::string text = io::render_safetensors_header(entries, header.metadata, "output");
    const auto again = io::parse_safetensors_header(
        std::string_view(text).substr(8), entries.empty() ? 0 : entries.back().end, "output");
    if (again.entries.size() != entries.size() || again.metadata != header.metadata) std::abort();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (again.entries[i].begin != entries[i].begin ||
          again.entries[i].shape != entries[i].shape) {
        std::abort();
      }
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kInput) std::abort();
  }
  return 0;
}
