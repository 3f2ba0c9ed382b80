#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "io/content_hash.h"
#include "io/hex.h"
#include "io/temp_dir.h"
#include "slimexx/base/json.h"
#include "slimexx/io/lines.h"
#include "slimexx/io/safetensors.h"
#include "test_paths.h"

namespace slimexx::io {
namespace {

using tensor::DType;

// Reads a file of the reference, shuffles its tensors and writes it again: the bytes are the same.
TEST(SafetensorsWriter, WritesTheReferencesBytes) {
  const TempDir dir;
  LineReader reader(test_data_path("io/safetensors_golden.jsonl"));
  Json c;
  int count = 0;
  for (; next_json_object(reader, c); ++count) {
    SCOPED_TRACE(c["case"].get<std::string>());
    const std::string golden = from_hex(c["file_hex"]);
    const SafetensorsFile file(dir.put("golden", golden));
    EXPECT_TRUE(file.unsupported().empty());
    std::vector<TensorEntry> entries(file.entries().rbegin(), file.entries().rend());
    sort_entries(entries);
    SafetensorsWriter writer(dir.file("ours"), entries, file.metadata());
    for (const TensorEntry& e : entries) {
      std::string data(e.end - e.begin, '\0');
      file.read(*file.find(e.name), 0, e.num_elements(), data.data());
      writer.write(data.data(), data.size() / 3);  // in two parts
      writer.write(data.data() + data.size() / 3, data.size() - data.size() / 3);
    }
    writer.finish();
    EXPECT_EQ(TempDir::read_bytes(dir.file("ours")), golden);
    EXPECT_EQ(writer.content_hash(), hash_text(golden));
    EXPECT_EQ(writer.content_hash(), hash_file(dir.file("ours")));
    EXPECT_EQ(writer.size_bytes(), golden.size());
  }
  EXPECT_EQ(count, 6);
}

TEST(SafetensorsWriter, HashIsXxh3) {
  // `xxhsum -H2` of an empty input and of "abc".
  EXPECT_EQ(hash_text(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_text("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(SafetensorsWriter, UnfinishedLeavesNothing) {
  const TempDir dir;
  {
    SafetensorsWriter writer(dir.file("x"), {{"a", DType::kF32, {4}}}, {});
    writer.write("12345678", 8);
    expect_error(ErrorCode::kRun, "8 of 16 bytes", [&] { writer.finish(); });
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsWriter, DiskFull) {
  const TempDir dir;
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10000, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  {
    SafetensorsWriter writer(dir.file("x"), {{"a", DType::kU8, {100000}}}, {});
    const std::string data(100000, 'x');
    expect_error(ErrorCode::kEnvironment, "cannot write",
                 [&] { writer.write(data.data(), data.size()); });
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace slimexx::io
