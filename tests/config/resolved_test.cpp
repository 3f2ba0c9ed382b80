// The resolved configuration reads back to the same values, for all kinds of values.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/numbers.h"
#include "config/options_fixture.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/philox.h"
#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

constexpr uint64_t kSeed = 20250101;

class OptionsMaker {
 public:
  explicit OptionsMaker(uint64_t trial) : random_(kSeed, trial) {}

  TestOptions make() {
    TestOptions o;
    o.num_rollout = 1 + static_cast<int64_t>(word() >> (random_.next_below(63) + 1));
    o.max_tokens = 1 + static_cast<int64_t>(random_.next_below(100000));
    o.lr = std::fabs(real());
    o.clip = std::max(1e-300, static_cast<double>(random_.next_uniform()));
    o.shuffle = random_.next_below(2) == 1;
    o.rm_type = text();
    o.estimator = random_.next_below(2) == 1 ? "gspo" : "ppo";
    if (random_.next_below(2) == 1) o.actor_num_gpus = 8;
    if (random_.next_below(2) == 1) o.clip_high = std::fabs(real());
    for (uint64_t i = random_.next_below(4); i > 0; --i) o.stop_ids.push_back(1000);
    for (uint64_t i = random_.next_below(4); i > 0; --i) o.stop.push_back(text());
    for (uint64_t i = random_.next_below(4); i > 0; --i)
      o.eval_sets.emplace_back("k" + std::to_string(i) + text(), text());
    if (random_.next_below(2) == 1) o.template_kwargs = json(3).dump();
    // Null means absent, and a text that starts like JSON is read as JSON.
    const bool starts_like_json =
        o.template_kwargs.find_first_of("{[") < 16 && o.template_kwargs[0] == '"';
    if (o.template_kwargs == "null" || starts_like_json) o.template_kwargs.clear();
    return o;
  }

 private:
  uint64_t word() { return uint64_t{random_.next_word()} << 32 | random_.next_word(); }
  double real() {
    for (;;) {
      const uint64_t bits = word();
      double value;
      std::memcpy(&value, &bits, sizeof value);
      if (std::isfinite(value)) return value;
    }
  }
  // A random text of pieces that are special in YAML, JSON or interpolation.
  std::string text() {
    static const std::vector<std::string> kPieces = {"a",
                                                     "true",
                                                     "null",
                                                     "~",
                                                     "no",
                                                     "1",
                                                     "1e3",
                                                     "0x1",
                                                     ".inf",
                                                     "-",
                                                     " ",
                                                     ": ",
                                                     " #",
                                                     "'",
                                                     "\"",
                                                     "\\",
                                                     "${",
                                                     "$",
                                                     "}",
                                                     "{",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     "&a",
                                                     "*a",
                                                     "!t",
                                                     "|",
                                                     ">",
                                                     "%",
                                                     "@",
                                                     "`",
                                                     "\n",
                                                     "\t",
                                                     "\r",
                                                     "\x01",
                                                     "\x7F",
                                                     "<<",
                                                     "---",
                                                     "...",
                                                     "?",
                                                     "\xC2\x85",
                                                     "\xE2\x80\xA8",
                                                     "\xEF\xBB\xBF",
                                                     "\xE4\xB8\xAD",
                                                     "\xF0\x9F\x98\x80",
                                                     "env:",
                                                     "=",
                                                     "\xC2\xA0",
                                                     "\xEF\xBF\xBE",
                                                     "${env:X}",
                                                     "$${"};
    std::string out;
    for (uint64_t i = random_.next_below(6); i > 0; --i)
      out += kPieces[random_.next_below(kPieces.size())];
    return out;
  }
  Json json(int depth) {
    switch (random_.next_below(depth > 0 ? 7 : 5)) {
      case 0:
        return nullptr;
      case 1:
        return random_.next_below(2) == 1;
      case 2:
        return static_cast<int64_t>(word());
      case 3:
        return real();
      case 4:
        return text();
      case 5: {
        Json list = Json::array();
        for (uint64_t i = random_.next_below(4); i > 0; --i) list.push_back(json(depth - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (uint64_t i = random_.next_below(4); i > 0; --i)
          object["k" + std::to_string(i) + text()] = json(depth - 1);
        return object;
      }
    }
  }
  PhiloxStream random_;
};

TestOptions read_back(const std::string& yaml) {
  Config config = Config::parse(yaml, "config.resolved.yaml", {});
  TestOptions o;
  bind_test_options(config.binder(), o);
  config.finish();
  return o;
}

TEST(Resolved, reads_back_to_equal_values) {
  for (uint64_t trial = 0; trial < 3000; ++trial) {
    const TestOptions want = OptionsMaker(trial).make();
    Config empty = Config::parse("", "empty", {});
    TestOptions copy = want;
    bind_test_options(empty.binder(), copy);
    const std::string yaml = empty.resolved_yaml();
    try {
      const TestOptions got = read_back(yaml);
      ASSERT_TRUE(got == want) << "seed " << kSeed << " trial " << trial << "\n"
                               << yaml << "\nJSON " << got.template_kwargs << "\nfor  "
                               << want.template_kwargs;
    } catch (const Error& e) {
      FAIL() << "seed " << kSeed << " trial " << trial << "\n" << e.what() << "\n" << yaml;
    }
  }
}

TEST(Numbers, read_doubles_exactly_as_the_shortest_text) {
  PhiloxStream random(kSeed, 1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = uint64_t{random.next_word()} << 32 | random.next_word();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    std::string reason;
    const auto got = parse_real(format_double(value), reason);
    ASSERT_TRUE(got.has_value()) << format_double(value) << " " << reason;
    ASSERT_EQ(std::memcmp(&*got, &value, sizeof value), 0) << value << " as " << *got;
  }
}

TEST(Numbers, reads_whole_numbers_at_the_edges) {
  std::string reason;
  EXPECT_EQ(parse_whole("-9223372036854775808", reason), INT64_MIN);
  EXPECT_EQ(parse_whole("9223372036854775807", reason), INT64_MAX);
  EXPECT_EQ(parse_whole("-9223372036854775809", reason), std::nullopt);
  EXPECT_EQ(parse_whole("9.223372036854775807e18", reason), INT64_MAX);
  EXPECT_EQ(parse_whole("0e99999999", reason), 0);
  EXPECT_EQ(parse_whole("0.000", reason), 0);
  EXPECT_FALSE(parse_whole("00012", reason));
  EXPECT_FALSE(parse_whole("0_1", reason));
  EXPECT_EQ(parse_whole("0", reason), 0);
  EXPECT_EQ(parse_real("0.5", reason), 0.5);
  EXPECT_EQ(parse_whole("12000e-3", reason), 12);
  for (const char* bad :
       {"", "_1", "1_", "1__0", "-", "+", ".", "e5", "1e", "1 2", "--1", "0o7", "1,000"})
    EXPECT_EQ(parse_whole(bad, reason), std::nullopt) << bad;
}

TEST(Resolved, keeps_references_to_the_environment) {
  ASSERT_EQ(setenv("SLX_TEST_SECRET", "4711", 1), 0);
  const std::string yaml =
      "rollout: {num_rollout: \"${env:SLX_TEST_SECRET}\", rollout_stop_token_ids: [1, "
      "\"${env:SLX_TEST_SECRET}\"]}\n"
      "reward: {rm_type: \"a$${b-${env:SLX_TEST_SECRET}\"}\n"
      "data: {apply_chat_template_kwargs: {k: \"${env:SLX_TEST_SECRET}\", n: 5, s: \"5\"}}\n"
      "eval: {eval_prompt_data: {set: \"${reward.rm_type}.jsonl\"}}\n";
  Config config = Config::parse(yaml, "run.yaml", {});
  TestOptions o;
  bind_test_options(config.binder(), o);
  config.finish();
  EXPECT_EQ(o.num_rollout, 4711);
  const std::string resolved = config.resolved_yaml();
  EXPECT_EQ(resolved.find("4711"), std::string::npos) << resolved;
  EXPECT_TRUE(resolved.starts_with("# env SLX_TEST_SECRET ")) << resolved;
  EXPECT_EQ(read_back(resolved), o) << resolved;
  EXPECT_NE(config.expanded_yaml().find("4711"), std::string::npos);
  ASSERT_EQ(setenv("SLX_TEST_SECRET", "4712", 1), 0);
  Config later = Config::parse(yaml, "run.yaml", {});
  bind_test_options(later.binder(), o);
  later.finish();
  const auto changes = list_changes(resolved, later.resolved_yaml());
  EXPECT_EQ(changes.size(), 5u);
  unsetenv("SLX_TEST_SECRET");
}

// Addresses lose secrets that are written in the file and keep references to the environment.
TEST(Resolved, addresses_have_no_secrets) {
  ASSERT_EQ(setenv("SLX_TEST_SECRET", "s3cret", 1), 0);
  const std::pair<const char*, const char*> cases[] = {
      {"http://host:80/r", "http://host:80/r"},
      {"http://user:word@host/r?key=1", "http://***@host/r?***"},
      {"http://${env:SLX_TEST_SECRET}:${env:SLX_TEST_SECRET}@host/r?key=${env:SLX_TEST_SECRET}",
       "http://${env:SLX_TEST_SECRET}:${env:SLX_TEST_SECRET}@host/r?key=${env:SLX_TEST_SECRET}"},
      {"http://user:${env:SLX_TEST_SECRET}@host", "http://***@host"},
      {"http://host/r?key=${env:SLX_TEST_SECRET}&mode=fast", "http://host/r?***"},
      {"http://host/r?key=${env:SLX_TEST_SECRET:-word}", "http://host/r?***"},
      {"${env:SLX_TEST_SECRET}", "${env:SLX_TEST_SECRET}"},
  };
  for (const auto& [written, shown] : cases) {
    Config config = Config::parse("", "run.yaml", {{"url", written}});
    std::string url;
    config.binder().field("url", url, {.doc = "An address.", .is_address = true});
    config.finish();
    const std::string resolved = config.resolved_yaml();
    EXPECT_NE(resolved.find(fmt::format("url: \"{}\"\n", shown)), std::string::npos) << resolved;
    EXPECT_EQ((resolved + config.expanded_yaml()).find("word"), std::string::npos) << resolved;
  }
  unsetenv("SLX_TEST_SECRET");
}

TEST(Reference, lists_every_field_with_its_flag) {
  FieldLister lister;
  TestOptions o;
  bind_test_options(lister, o);
  EXPECT_EQ(lister.fields().size(), 13u);
  const std::string reference = write_config_reference(lister);
  EXPECT_NE(reference.find("## rollout\n\nWhat is generated.\n"), std::string::npos) << reference;
  EXPECT_NE(reference.find("| `rl.eps_clip` | float | `0.2` | - | > 0, <= 1 | - | `--eps-clip` | "
                           "Lower clip. |"),
            std::string::npos)
      << reference;
  EXPECT_NE(reference.find("Upper clip \\| default eps_clip."), std::string::npos);
  EXPECT_NE(reference.find("| `parallel.actor_num_gpus` | int | - | - | >= 1 | - | - |"),
            std::string::npos);
  const std::string table = write_flag_reference(lister);
  for (const char* row :
       {"| `--lr` | works | `optimizer.lr` | - |",
        "| `--use-opd` | later | - | planned: on-policy distillation; accepted: `false` |",
        "| `--attention-dropout` | not needed here | - | there is no dropout; accepted: `0` |",
        "| `--custom-config-path` | Python only | - | --config FILE, whose",
        "| `worker-type` | later |", "| verl | `clip_ratio` | `rl.eps_clip` |"})
    EXPECT_NE(table.find(row), std::string::npos) << row << "\n" << table;
  EXPECT_EQ(table.find("actor-num-gpus`"), std::string::npos);
}

}  // namespace
}  // namespace slimexx::config
