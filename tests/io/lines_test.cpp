#include "slimexx/io/lines.h"

#include <zstd.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "io/temp_dir.h"

namespace slimexx::io {
namespace {

std::string compress(const std::string& text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer from{text.data(), text.size(), 0};
  // Flush first: with a known content size, zstd would shrink the window to it.
  EXPECT_FALSE(ZSTD_isError(ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush)));
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

std::vector<std::string> read_all(const std::string& path, uint64_t max_line = 1 << 20) {
  LineReader reader(path, max_line);
  std::vector<std::string> lines;
  std::string line;
  while (reader.next(line)) {
    lines.push_back(line);
    EXPECT_EQ(reader.line_number(), int64_t(lines.size()));
  }
  EXPECT_FALSE(reader.next(line));  // another call at the end
  EXPECT_EQ(reader.line_number(), int64_t(lines.size()));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(Lines, EndsOfLines) {
  const TempDir dir;
  const std::vector<std::pair<std::string, Lines>> cases = {
      {"", {}},
      {"\n", {""}},
      {"a", {"a"}},
      {"a\n", {"a"}},
      {"a\r\nb\r\n", {"a", "b"}},
      {"a\n\n\nb", {"a", "", "", "b"}},
      {"\r\n\r\n", {"", ""}},
      {"a\rb\r\r\n", {"a\rb\r"}},
      {"a\r", {"a\r"}},
      {std::string("a\0b\n", 4), {std::string("a\0b", 3)}},
  };
  for (const auto& [text, lines] : cases) {
    EXPECT_EQ(read_all(dir.put("t.jsonl", text)), lines) << text;
    EXPECT_EQ(read_all(dir.put("t.jsonl.zst", compress(text))), lines) << text;
  }
}

TEST(Lines, LinesAcrossBuffers) {
  const TempDir dir;
  std::string text;
  Lines lines;
  for (size_t n : {0, 1, 262143, 262144, 262145, 700000, 3}) {
    lines.emplace_back(n, char('a' + lines.size()));
    text += lines.back() + (lines.size() % 2 ? "\n" : "\r\n");
  }
  EXPECT_EQ(read_all(dir.put("t", text)), lines);
  EXPECT_EQ(read_all(dir.put("t.zst", compress(text))), lines);
}

TEST(Lines, LimitOfALine) {
  const TempDir dir;
  const std::string text = "ok\n" + std::string(1001, 'x') + "\n";
  for (const auto& path : {dir.put("t", text), dir.put("t.zst", compress(text))}) {
    expect_error(ErrorCode::kInput, path + ":2", [&] { read_all(path, 1000); });
    EXPECT_EQ(read_all(path, 1001).size(), 2u);
  }
  // A decompression bomb (1 GiB of one character in some ten kilobytes) stops at the limit.
  std::string bomb;
  const std::string block = compress(std::string(1 << 24, 'a'));
  for (int i = 0; i < 64; ++i) bomb += block;
  const auto path = dir.put("bomb.zst", bomb);
  expect_error(ErrorCode::kInput, "longer than", [&] { read_all(path, 1 << 20); });
}

TEST(Lines, ConcatenatedAndSkippableFrames) {
  const TempDir dir;
  const std::string skippable("\x50\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
  const std::string two =
      compress("a\nb") + skippable + compress("") + compress("c\nd\n") + skippable;
  EXPECT_EQ(read_all(dir.put("t.zst", two)), (Lines{"a", "bc", "d"}));
  EXPECT_EQ(read_all(dir.put("s.zst", skippable)), Lines{});
}

TEST(Lines, EveryTruncationIsNamed) {
  const TempDir dir;
  const std::string packed = compress("{\"a\": 1}\n{\"b\": 2}\n");
  for (size_t n = 0; n < packed.size(); ++n) {
    const auto path = dir.put("t.zst", packed.substr(0, n));
    expect_error(ErrorCode::kInput, "truncated", [&] { read_all(path); });
  }
  // If the second frame is truncated, the lines of the first frame are returned before the error.
  LineReader reader(dir.put("u.zst", packed + packed.substr(0, 9)));
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_TRUE(reader.next(line));
  expect_error(ErrorCode::kInput, std::to_string(packed.size()), [&] { reader.next(line); });
}

TEST(Lines, DamageIsAnError) {
  const TempDir dir;
  const std::string text = "{\"a\": [1, 2, 3, 4]}\n{\"b\": \"some text that is long enough\"}\n";
  const std::string packed = compress(text);
  int found = 0;
  for (size_t i = 0; i < packed.size() * 8; ++i) {
    std::string bad = packed;
    bad[i / 8] = char(bad[i / 8] ^ (1 << (i % 8)));
    const auto path = dir.put("t.zst", bad);
    try {
      std::string all;
      for (const auto& line : read_all(path)) all += line + "\n";
      // Only flips of header bits that do not affect the content may go undetected.
      EXPECT_EQ(all, text) << "bit " << i;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInput);
      ++found;
    }
  }
  EXPECT_GT(found, int(packed.size() * 8) * 9 / 10);
}

TEST(Lines, GarbageAndForeignFiles) {
  const TempDir dir;
  for (const char* garbage : {"garbage!", "\n", "xy"}) {
    const auto path = dir.put("t.zst", compress("a\n") + garbage);
    expect_error(ErrorCode::kInput, "byte", [&] { read_all(path); });
  }
  auto path = dir.put("t.zst", "{\"a\": 1}\n");
  expect_error(ErrorCode::kInput, "not compressed with zstd", [&] { read_all(path); });
  path = dir.put("bom", "\xEF\xBB\xBF{}\n");
  expect_error(ErrorCode::kInput, "byte-order mark", [&] { read_all(path); });
  path = dir.put("gz", "\x1F\x8B\x08\n");
  expect_error(ErrorCode::kInput, "gunzip", [&] { read_all(path); });
  path = dir.put("lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  expect_error(ErrorCode::kInput, "git lfs pull", [&] { read_all(path); });
  expect_error(ErrorCode::kInput, "absent", [&] { read_all(dir.file("absent")); });
  expect_error(ErrorCode::kInput, "not a regular file", [&] { read_all("/dev/zero"); });
  expect_error(ErrorCode::kInput, "not a regular file", [&] { read_all(dir.path()); });
}

TEST(Lines, WindowLimit) {
  const TempDir dir;
  const std::string text = "{}\n";
  EXPECT_EQ(read_all(dir.put("t.zst", compress(text, 27))), Lines{"{}"});
  const auto path = dir.put("t.zst", compress(text, 28));
  expect_error(ErrorCode::kInput, "window above 128 MiB", [&] { read_all(path); });
}

TEST(Lines, JsonObjects) {
  const TempDir dir;
  const auto path = dir.put("t.jsonl", "{\"a\": 1}\n\n  \r\n{\"a\": 2}\n{\"a\": 3, \"a\": 4}\n");
  LineReader reader(path);
  Json object;
  ASSERT_TRUE(next_json_object(reader, object));
  ASSERT_TRUE(next_json_object(reader, object));
  EXPECT_EQ(object["a"], 2);
  EXPECT_EQ(reader.where(), path + ":4");
  expect_error(ErrorCode::kInput, path + ":5", [&] { next_json_object(reader, object); });
  EXPECT_FALSE(next_json_object(reader, object));
  for (const char* bad : {"[1]\n", "3", "{\"a\": \"\xFF\"}", "{\"a\": 1} x", "{\"a\": NaN}",
                          "{\"a\"\n: 1}", "{\"a\": 18446744073709551616}"}) {
    LineReader bad_reader(dir.put("bad", bad));
    expect_error(ErrorCode::kInput, "bad:1", [&] { next_json_object(bad_reader, object); });
  }
}

// 4 GiB of newlines in some 400 KB once took a minute to skip.
TEST(Lines, FloodOfBlankLines) {
  const TempDir dir;
  std::string flood;
  const std::string block = compress(std::string(1 << 24, '\n'));
  for (int i = 0; i < 256; ++i) flood += block;
  LineReader reader(dir.put("flood.zst", flood));
  Json object;
  expect_error(ErrorCode::kInput, "blank lines in a row",
               [&] { next_json_object(reader, object); });
  EXPECT_LT(reader.bytes_read(), uint64_t{65} << 20);
  LineReader some(dir.put("some", std::string(1 << 20, '\n') + "{}"));
  EXPECT_TRUE(next_json_object(some, object));
  EXPECT_EQ(some.bytes_read(), (uint64_t{1} << 20) + 3);
}

TEST(Lines, LimitOfARow) {
  const TempDir dir;
  LineReader reader(dir.put("t", "{\"tokens\":[" + std::string(kMaxLineBytes, ' ') + "]}"));
  Json object;
  const std::string text = expect_error(ErrorCode::kInput, "longer than 32.0 MiB",
                                        [&] { next_json_object(reader, object); });
  EXPECT_NE(text.find("hint: "), std::string::npos);
}

TEST(Lines, WriterRoundTrip) {
  const TempDir dir;
  Lines lines;
  for (int i = 0; i < 5000; ++i)
    lines.push_back(std::string(size_t(i * 37 % 301), char('!' + i % 90)));
  for (const char* name : {"w.jsonl", "w.jsonl.zst"}) {
    const auto path = dir.file(name);
    {
      LineWriter unfinished(path);
      unfinished.write("x");
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    LineWriter writer(path);
    for (const auto& line : lines) writer.write(line);
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
    EXPECT_EQ(read_all(path), lines);
  }
  EXPECT_LT(std::filesystem::file_size(dir.file("w.jsonl.zst")),
            std::filesystem::file_size(dir.file("w.jsonl")) / 4);
  LineWriter(dir.file("empty.zst")).finish();
  EXPECT_EQ(read_all(dir.file("empty.zst")), Lines{});
}

}  // namespace
}  // namespace slimexx::io
