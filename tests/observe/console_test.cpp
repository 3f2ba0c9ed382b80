#include "slimexx/observe/console.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "slimexx/base/philox.h"
#include "slimexx/base/strings.h"

namespace slimexx::observe {
namespace {

TEST(DisplayWidth, counts_columns) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\xE4\xB8\xAD\xE6\x96\x87"), 4);  // two Chinese characters
  EXPECT_EQ(display_width("e\xCC\x81"), 1);                 // e and a combining accent
  EXPECT_EQ(display_width("\xF0\x9F\x98\x80"), 2);          // an emoji
  EXPECT_EQ(display_width("\xE2\x9D\xA4\xEF\xB8\x8F"), 2);  // heart, emoji style
  EXPECT_EQ(display_width("\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB"), 2);  // joined by U+200D
  EXPECT_EQ(display_width("a\nb"), 3);
  EXPECT_EQ(display_width("\xFF"), 1);
}

TEST(FitText, shows_control_characters_and_cuts) {
  EXPECT_EQ(fit_text("abc", 3), "abc");
  EXPECT_EQ(fit_text("abcd", 3), "ab\xE2\x80\xA6");
  EXPECT_EQ(fit_text("abcd", 3, true),
            "\xE2\x80\xA6"
            "cd");
  EXPECT_EQ(fit_text("a\nb", 9),
            "a\xE2\x86\xB5"
            "b");
  EXPECT_EQ(fit_text("\x1b[31m", 9), "\xE2\x90\x9B[31m");
  EXPECT_EQ(fit_text("a\xE2\x80\xAE"
                     "b",
                     9),
            "a\xEF\xBF\xBD"
            "b");  // a mark that reverses the text direction
  EXPECT_EQ(fit_text("\xE4\xB8\xAD\xE6\x96\x87", 3), "\xE4\xB8\xAD\xE2\x80\xA6");
  EXPECT_EQ(fit_text("abc", 0), "");
  EXPECT_EQ(fit_text("abc", 1), "\xE2\x80\xA6");
  const std::string tail = fit_text(std::string(1 << 20, 'x') + "end", 5, true);
  EXPECT_EQ(tail,
            "\xE2\x80\xA6"
            "xend");
}

TEST(FitText, never_exceeds_its_width_nor_prints_controls) {
  constexpr uint64_t kSeed = 7;
  PhiloxStream random(kSeed, 0);
  for (int trial = 0; trial < 5000; ++trial) {
    std::string text;
    for (uint64_t i = random.next_below(40); i > 0; --i) {
      if (random.next_below(4) == 0) {
        text += static_cast<char>(random.next_below(256));
      } else {
        append_utf8(text, static_cast<uint32_t>(random.next_below(0xD800)));
      }
    }
    const auto width = static_cast<int64_t>(random.next_below(12));
    const std::string out = fit_text(text, width, random.next_below(2) == 1);
    ASSERT_LE(display_width(out), width) << "seed " << kSeed << " trial " << trial << " " << out;
    ASSERT_TRUE(is_valid_utf8(out));
    for (size_t at = 0; at < out.size();) {
      const uint32_t code = next_code_point(out, at);
      ASSERT_TRUE(code >= 0x20 && !(code >= 0x7F && code < 0xA0)) << code;
      ASSERT_TRUE(code < 0x2028 || code > 0x202E) << code;
    }
  }
}

TEST(Table, aligns_by_width) {
  const std::string text =
      format_table({{"name", 10}, {"n", 6, true}},
                   {{"\xE4\xB8\xAD\xE6\x96\x87", "1"}, {"abc", "22"}, {"a very long name", "3"}});
  EXPECT_EQ(text,
            "name         n\n"
            "\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80"
            "\xE2\x94\x80\xE2\x94\x80\xE2\x94\x80  \xE2\x94\x80\xE2\x94\x80\n"
            "\xE4\xB8\xAD\xE6\x96\x87         1\n"
            "abc         22\n"
            "a very lo\xE2\x80\xA6   3\n");
  EXPECT_EQ(format_table({{"a"}}, {}), "a\n\xE2\x94\x80\n");
}

TEST(Plot, puts_low_values_low) {
  const std::string text = plot_series("loss", {0, 1}, 8, 2);
  // A rising diagonal from the lowest dot on the left to the highest on the right.
  EXPECT_EQ(text,
            "loss\n"
            "         1 \xE2\x94\xA4\xE2\xA0\x80\xE2\xA0\x80\xE2\xA0\x80\xE2\xA0\x80"
            "\xE2\xA2\x80\xE2\xA1\xA0\xE2\xA0\x94\xE2\xA0\x8A\n"
            "         0 \xE2\x94\xA4\xE2\xA3\x80\xE2\xA1\xA0\xE2\xA0\x94\xE2\xA0\x8A"
            "\xE2\xA0\x81\xE2\xA0\x80\xE2\xA0\x80\xE2\xA0\x80\n"
            "            0      1\n");
  const double huge = std::numeric_limits<double>::max();
  for (const auto& values : std::vector<std::vector<double>>{
           {}, {1}, {std::nan("")}, {-huge, huge, 0}, {1, std::nan(""), 2, INFINITY}, {5, 5, 5}})
    EXPECT_FALSE(plot_series("t", values, 30, 5).empty());
  EXPECT_NE(plot_series("t", {std::nan("")}, 30, 5).find("no finite values"), std::string::npos);
}

TEST(Progress, is_quiet_for_short_phases_and_safe_from_threads) {
  ::testing::internal::CaptureStderr();
  {
    ProgressBar bar("load", 4000, true), off("off", 10, false);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) bar.advance();
        off.advance(5);
      });
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace slimexx::observe
