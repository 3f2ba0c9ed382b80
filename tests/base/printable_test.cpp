#include "slimexx/base/printable.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"

namespace slimexx {
namespace {

using std::string_view_literals::operator""sv;

// All kinds of bytes that must not reach a terminal.
constexpr std::string_view kHostile =
    "a\x1b[31m\r\n\tb\0c\x7F\xC2\x85\xE2\x80\xAE\xE2\x81\xA6\xE2\x80\xA8\xFF\xC3("sv;
constexpr std::string_view kShown =
    "a\\x1b[31m\\r\\n\tb\\x00c\\x7f\\x85\\u202e\\u2066\\u2028\\xff\\xc3(";

TEST(Printable, EscapesWhatMovesTheCursor) {
  EXPECT_EQ(make_printable(kHostile), kShown);
  EXPECT_EQ(make_printable("\xC3\xA4 \xE4\xB8\xAD \xF0\x9F\x98\x80 \\x1b"),
            "\xC3\xA4 \xE4\xB8\xAD \xF0\x9F\x98\x80 \\x1b");
  EXPECT_EQ(make_printable(""), "");
}

TEST(Printable, BoundsTheLength) {
  const std::string whole(400, 'x');
  EXPECT_EQ(make_printable(whole), whole);
  EXPECT_EQ(make_printable(std::string(3'000'000, 'x')),
            std::string(368, 'x') + "... (3000000 bytes)");
  // Text is cut between code points, never inside an escape.
  for (size_t n = 300; n < 500; ++n) {
    for (const char* unit : {"\xE4\xB8\xAD", "\x1b", "\xFF"}) {
      std::string text(n % 7, 'x');
      while (text.size() < n) text += unit;
      const std::string shown = make_printable(text);
      EXPECT_LE(shown.size(), 400u);
      EXPECT_TRUE(is_valid_utf8(shown));
      EXPECT_EQ(make_printable(shown), shown);
      if (shown.ends_with("bytes)") && unit[0] == '\x1b') {
        EXPECT_EQ(shown.substr(shown.find("...") - 4, 4), "\\x1b");
      }
    }
  }
}

TEST(Printable, KeepsLinesOfOurOwn) {
  EXPECT_EQ(make_printable_lines("two faults:\n  a\x1b\n  b", 100), "two faults:\n  a\\x1b\n  b");
  EXPECT_EQ(make_printable_lines("table\nh  x\n   1\n", 100), "table\n  h  x\n     1\n");
  EXPECT_EQ(make_printable_lines("bad: x\nerror: fake", 100), "bad: x\n  error: fake");
  const std::string long_line = "x\n" + std::string(500, 'y') + "\nz";
  EXPECT_EQ(make_printable_lines(long_line, 100),
            "x\n  " + std::string(68, 'y') + "... (500 bytes)\n  z");
  const std::string flood(1'000'000, '\n');
  EXPECT_LT(make_printable_lines(flood, 100).size(), 300u);
  for (const std::string& text : {long_line, flood, std::string(kHostile)}) {
    const std::string once = make_printable_lines(text, 100);
    EXPECT_EQ(make_printable_lines(once, 100), once);
  }
}

TEST(Printable, ErrorsAreEverywhere) {
  const Error e(ErrorCode::kInput, "message \x1b[31m\nerror: fake" + std::string(1 << 20, 'x'),
                "hint \x1b", "m\xFF/tokenizer.json\n");
  EXPECT_TRUE(e.message().starts_with("message \\x1b[31m\n  error: fake"));
  EXPECT_LT(e.message().size(), 2000u);
  EXPECT_EQ(e.hint(), "hint \\x1b");
  EXPECT_EQ(e.where(), "m\\xff/tokenizer.json\\n");
  EXPECT_EQ(std::string_view(e.what()).find('\x1b'), std::string_view::npos);
  EXPECT_TRUE(is_valid_utf8(e.what()));
  EXPECT_EQ(e.with_where("elsewhere").what(), std::string_view(e.what()));
}

TEST(Printable, LogLines) {
  std::string folder = (std::filesystem::temp_directory_path() / "slx_log_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  open_log_file(folder + "/log");
  log_debug("tensor {}", kHostile);
  log_warn("{}", "two\nlines");
  const std::string text = read_text_file(folder + "/log");
  std::filesystem::remove_all(folder);
  EXPECT_NE(text.find("tensor a\\x1b[31m\\r\n"), std::string::npos) << text;
  EXPECT_NE(text.find("b\\x00c\\x7f\\x85\\u202e\\u2066\\u2028\\xff\\xc3("), std::string::npos)
      << text;
  EXPECT_NE(text.find("two\n  lines\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace slimexx
