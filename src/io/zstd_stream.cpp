#include "io/zstd_stream.h"

#include <fmt/core.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"

namespace slimexx::io {

ZstdSource::ZstdSource(std::unique_ptr<ByteSource> compressed, std::string where)
    : compressed_(std::move(compressed)),
      where_(std::move(where)),
      context_(ZSTD_createDCtx()),
      input_(ZSTD_DStreamInSize()) {
  SLX_CHECK(context_ != nullptr, "no memory for a zstd context");
  ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
}

ZstdSource::~ZstdSource() { ZSTD_freeDCtx(context_); }

bool ZstdSource::refill() {
  input_offset_ += filled_;
  used_ = 0;
  filled_ = compressed_->read(input_.data(), input_.size());
  return filled_ > 0;
}

void ZstdSource::fail_decode(size_t code) const {
  const uint64_t at = input_offset_ + used_;
  if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
    throw Error(ErrorCode::kInput,
                fmt::format("the zstd frame at byte {} needs a window above {} MiB", frame_offset_,
                            1 << (kMaxZstdWindowLog - 20)),
                "compress the file again without --ultra --long", where_);
  }
  if (ZSTD_getErrorCode(code) == ZSTD_error_prefix_unknown) {
    throw Error(
        ErrorCode::kInput,
        frame_offset_ == 0
            ? "the file is not compressed with zstd, but its name ends in .zst"
            : fmt::format("bytes that are not a zstd frame follow at byte {}", frame_offset_),
        "compress the file again", where_);
  }
  throw Error(ErrorCode::kInput,
              fmt::format("the zstd frame at byte {} is damaged near byte {}: {}", frame_offset_,
                          at, ZSTD_getErrorName(code)),
              "fetch or write the file again", where_);
}

void ZstdSource::fail_truncated() const {
  throw Error(ErrorCode::kInput,
              fmt::format("the file ends at byte {}, inside the zstd frame that starts at byte {}",
                          input_offset_, frame_offset_),
              "the file is truncated: fetch or write it again", where_);
}

size_t ZstdSource::read(char* destination, size_t capacity) {
  ZSTD_outBuffer out{destination, capacity, 0};
  while (out.pos == 0) {
    if (used_ == filled_ && !output_pending_ && !refill()) {
      if (in_frame_ || input_offset_ == 0) fail_truncated();
      return 0;
    }
    if (!in_frame_) frame_offset_ = input_offset_ + used_;
    in_frame_ = true;
    ZSTD_inBuffer in{input_.data(), filled_, used_};
    const size_t code = ZSTD_decompressStream(context_, &out, &in);
    used_ = in.pos;
    if (ZSTD_isError(code)) fail_decode(code);
    in_frame_ = code != 0;
    output_pending_ = in_frame_ && out.pos == out.size;
  }
  return out.pos;
}

ZstdCompressor::ZstdCompressor(int level) : context_(ZSTD_createCCtx()) {
  SLX_CHECK(context_ != nullptr, "no memory for a zstd context");
  ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
}

ZstdCompressor::~ZstdCompressor() { ZSTD_freeCCtx(context_); }

void ZstdCompressor::compress(std::string_view text, bool end, std::string& out) {
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  const size_t step = ZSTD_CStreamOutSize();
  size_t rest = 1;
  while (in.pos < in.size || (end && rest != 0)) {
    const size_t before = out.size();
    out.resize(before + step);
    ZSTD_outBuffer chunk{out.data() + before, step, 0};
    rest = ZSTD_compressStream2(context_, &chunk, &in, end ? ZSTD_e_end : ZSTD_e_continue);
    SLX_CHECK(!ZSTD_isError(rest), "zstd failed: {}", ZSTD_getErrorName(rest));
    out.resize(before + chunk.pos);
  }
}

}  // namespace slimexx::io
