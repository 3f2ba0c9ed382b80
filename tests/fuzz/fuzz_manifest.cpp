// Input: the text of a checkpoint's manifest, or of one shard's description. The hash at the end of
// the manifest is not checked here, because the fuzzer could not guess it: accepted input is
// rendered, hashed and read again.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/checkpoint/manifest.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace {

using namespace slimexx;

template <class Body>
void expect_input_errors_only(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kInput) std::abort();
  }
}

void read_manifest_text(std::string_view text) {
  const io::Manifest manifest = io::read_manifest_json(parse_json(text, "input"), "input");
  const std::string rendered = io::render_manifest(manifest);
  const io::Manifest again = io::parse_manifest(rendered, "rendered");
  if (io::render_manifest(again) != rendered) std::abort();
  const auto cover =
      io::cover_tensors(manifest.tensors, manifest.shards, ErrorCode::kInput, "input");
  for (size_t t = 0; t < cover.size(); ++t) {
    int64_t elements = 0;
    for (const auto [shard, piece] : cover[t]) {
      const auto& p = manifest.shards[shard].pieces[piece];
      elements += p.end - p.begin;
    }
    if (elements != manifest.tensors[t].num_elements()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_input_errors_only([&] { io::parse_manifest(text, "input"); });
  expect_input_errors_only([&] { read_manifest_text(text); });
  expect_input_errors_only([&] {
    const io::ShardInfo shard = io::shard_from_json(std::string(text));
    const std::string json = io::shard_to_json(shard);
    if (io::shard_to_json(io::shard_from_json(json)) != json) std::abort();
  });
  return 0;
}
