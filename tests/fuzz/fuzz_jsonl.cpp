// Input: a byte that selects plain (even) or zstd (odd), then a file of JSON lines.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/byte_source.h"
#include "io/line_splitter.h"
#include "io/zstd_stream.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slimexx;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::unique_ptr<io::ByteSource> source = std::make_unique<io::MemorySource>(text);
  if (data[0] & 1) source = std::make_unique<io::ZstdSource>(std::move(source), "input");
  try {
    io::LineSplitter lines(std::move(source), "input", 1 << 20);
    std::string line;
    int64_t count = 0;
    while (lines.next(line)) {
      if (lines.line_number() != ++count || line.find('\n') != std::string::npos) std::abort();
      if (count > 100000) break;  // very many lines are slow, not a bug
      try {
        const Json value = parse_json(line, lines.where());
        const std::string written = value.dump();
        if (parse_json(written, "written").dump() != written) std::abort();
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kInput) std::abort();
      }
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kInput) std::abort();
  }
  return 0;
}
