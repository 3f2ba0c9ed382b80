// zstd decompression and compression as streams with bounded memory.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_source.h"

struct ZSTD_DCtx_s;
struct ZSTD_CCtx_s;

namespace slimexx::io {

inline constexpr int kMaxZstdWindowLog = 27;  // the decompressor may allocate 128 MiB

// Decompresses one or more zstd frames and skips skippable frames. Throws Error(kInput) for a
// frame that is truncated, damaged or followed by other data, and for a window over the limit.
class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::unique_ptr<ByteSource> compressed, std::string where);
  ~ZstdSource() override;
  size_t read(char* destination, size_t capacity) override;

 private:
  bool refill();
  [[noreturn]] void fail_decode(size_t code) const;
  [[noreturn]] void fail_truncated() const;

  std::unique_ptr<ByteSource> compressed_;
  std::string where_;
  ZSTD_DCtx_s* context_;
  std::vector<char> input_;
  size_t used_ = 0, filled_ = 0;  // range in input_
  uint64_t input_offset_ = 0;     // offset of input_[0] in the compressed stream
  uint64_t frame_offset_ = 0;     // start of the current frame
  bool in_frame_ = false;
  bool output_pending_ = false;  // the decoder stopped because the destination was full
};

// Compresses into one frame with a checksum; the owner drains the growing output string.
class ZstdCompressor {
 public:
  explicit ZstdCompressor(int level = 3);
  ~ZstdCompressor();
  ZstdCompressor(const ZstdCompressor&) = delete;
  ZstdCompressor& operator=(const ZstdCompressor&) = delete;
  void append(std::string_view text, std::string& out) { compress(text, false, out); }
  void end(std::string& out) { compress({}, true, out); }

 private:
  void compress(std::string_view text, bool end, std::string& out);
  ZSTD_CCtx_s* context_;
};

}  // namespace slimexx::io
