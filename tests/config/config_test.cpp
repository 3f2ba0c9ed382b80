#include "slimexx/config/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/options_fixture.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "test_paths.h"

namespace slimexx::config {
namespace {

std::vector<Json> read_cases(const std::string& name) {
  setenv("SLX_TEST_SET", "from_env", 1);
  unsetenv("SLX_TEST_UNSET");
  std::ifstream file(test_data_path("config/") + name);
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(parse_json(line, name));
  EXPECT_GT(cases.size(), 30u) << "the cases are missing";
  return cases;
}

std::vector<Override> overrides_of(const Json& c) {
  std::vector<Override> overrides;
  if (c.contains("set"))
    for (const auto& pair : c["set"]) overrides.push_back({pair[0], pair[1]});
  return overrides;
}

// Maps paths to values, read from "section:" and "  key: value" lines.
std::map<std::string, std::string> values_in(const std::string& yaml) {
  std::map<std::string, std::string> values;
  std::istringstream stream(yaml);
  std::string section;
  for (std::string line; std::getline(stream, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("  "))
      values[section + "." + line.substr(2, colon - 2)] = line.substr(colon + 2);
    else
      section = line.substr(0, colon);
  }
  return values;
}

// Parses, binds and finishes; returns the text of the error, or "".
std::string fault_text(const std::string& yaml, const std::vector<Override>& overrides) {
  try {
    Config config = Config::parse(yaml, "bad.yaml", overrides);
    TestOptions options;
    bind_test_options(config.binder(), options);
    config.finish();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "";
}

TEST(Config, reads_good_cases) {
  for (const Json& c : read_cases("good_cases.jsonl")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    try {
      Config config = Config::parse(c["yaml"], "good.yaml", overrides_of(c));
      TestOptions options;
      bind_test_options(config.binder(), options);
      config.finish();
      const auto values = values_in(config.expanded_yaml());
      for (const auto& [path, want] : c["expect"].items())
        EXPECT_EQ(values.at(path), want.get<std::string>()) << path;
      if (!c.contains("origin")) continue;
      for (const auto& [path, want] : c["origin"].items())
        EXPECT_EQ(config.origin(path), want.get<std::string>()) << path;
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(Config, refuses_bad_cases) {
  for (const Json& c : read_cases("bad_cases.jsonl")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string text = fault_text(c["yaml"], overrides_of(c));
    for (const auto& part : c["has"])
      EXPECT_NE(text.find(part.get<std::string>()), std::string::npos)
          << "lacks: " << part << "\nmessage: " << text;
    EXPECT_EQ(text.find("bad conversion"), std::string::npos);
    for (const char byte : text)
      EXPECT_TRUE(byte == '\n' || static_cast<unsigned char>(byte) >= 0x20);
  }
}

TEST(Config, refuses_what_costs_more_than_it_weighs) {
  const auto refused = [](const std::string& yaml, const char* part) {
    const std::string text = fault_text(yaml, {});
    EXPECT_NE(text.find(part), std::string::npos) << text.substr(0, 400);
  };
  refused("rollout: " + std::string(100000, '['), "levels deep");
  refused("rollout: " + std::string(100000, '{'), "levels deep");
  std::string stairs;
  for (int i = 0; i < 400; ++i) stairs += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  refused(stairs, "levels deep");
  refused("rollout: " + std::string(100000, '-'), "is a section");
  std::string dashes = "rollout:\n  ";
  for (int i = 0; i < 5000; ++i) dashes += "- ";
  refused(dashes, "levels deep");
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i)
      bomb += std::string(i == 0 ? "*" : ", *") + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  refused(bomb, "more than 10000 values");
  std::string many = "rollout: [";
  for (int i = 0; i < 20000; ++i) many += "1,";
  refused(many + "]", "more than 10000 values");
  refused(std::string((1 << 20) + 1, ' '), "a configuration may have at most 1048576");
  refused("rollout: \xFF", "not valid UTF-8");
  refused(std::string("rollout: \0", 10), "NUL");
  refused(std::string(1000, 'k') + ": 1", "a key of 1000 bytes");
  std::string chain = "reward:\n  k0: x\n", doubling = "reward:\n  k0: xxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 3000; ++i)
    chain += "  k" + std::to_string(i) + ": ${reward.k" + std::to_string(i - 1) + "}\n";
  for (int i = 1; i < 30; ++i)
    doubling += "  k" + std::to_string(i) + ": ${reward.k" + std::to_string(i - 1) + "}${reward.k" +
                std::to_string(i - 1) + "}\n";
  refused(doubling, "grows beyond 65536 bytes");
  refused("reward:\n  rm_type: ${reward.k2999}\n" + chain.substr(8), "chain of more than 32");
}

TEST(Config, reports_thousands_of_unknown_keys) {
  std::string yaml = "rollout:\n";
  for (int i = 0; i < 4500; ++i) yaml += "  some_unknown_key_" + std::to_string(i) + ": 1\n";
  EXPECT_NE(fault_text(yaml, {}).find("and 960 more"), std::string::npos);
}

class ConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "slx_config_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    make_directories(dir_ + "/sub");
  }
  std::string write(const std::string& name, const std::string& text) {
    write_file_atomic(dir_ + "/" + name, text);
    return dir_ + "/" + name;
  }
  std::string load_fault(const std::string& path) {
    try {
      Config::load(path, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  std::string dir_;
};

TEST_F(ConfigFiles, merges_the_defaults_chain) {
  write("sub/ground.yaml", "optimizer: {lr: 1}\nrl: {eps_clip: 0.1, eps_clip_high: 0.4}\n");
  write("sub/base.yaml",
        "defaults: ground.yaml\nrl: {eps_clip: 0.2}\nrollout: {rollout_stop: [a, b]}\n");
  const std::string path =
      write("run.yaml",
            "defaults: [sub/base.yaml]\nrl: {eps_clip_high: null}\nrollout: {rollout_stop: [c]}\n");
  Config config = Config::load(path, {});
  TestOptions o;
  bind_test_options(config.binder(), o);
  config.finish();
  EXPECT_EQ(o.lr, 1.0);
  EXPECT_EQ(o.clip, 0.2);
  EXPECT_EQ(o.clip_high, std::nullopt);
  EXPECT_EQ(o.stop, std::vector<std::string>{"c"});
  EXPECT_EQ(config.origin("optimizer.lr"), dir_ + "/sub/ground.yaml:1:17");
  EXPECT_EQ(config.origin("rollout.rollout_stop"), path + ":3:25");
  EXPECT_TRUE(config.is_set("rl.eps_clip"));
  EXPECT_FALSE(config.is_set("rl.eps_clip_high"));
}

TEST_F(ConfigFiles, refuses_circles_and_floods) {
  const std::string a = write("a.yaml", "defaults: b.yaml\n");
  write("b.yaml", "defaults: ./sub/../a.yaml\n");
  EXPECT_NE(load_fault(a).find("include each other"), std::string::npos) << load_fault(a);
  const std::string self = write("self.yaml", "defaults: self.yaml\n");
  EXPECT_NE(load_fault(self).find("include each other"), std::string::npos);
  // Each of 30 levels names the next file twice, which would be 2^30 files.
  for (int i = 0; i < 30; ++i) {
    const std::string next = "f" + std::to_string(i + 1) + ".yaml";
    write("f" + std::to_string(i) + ".yaml", "defaults: [" + next + ", " + next + "]\n");
  }
  write("f30.yaml", "");
  EXPECT_NE(load_fault(dir_ + "/f0.yaml").find("more than 32 files"), std::string::npos);
}

TEST_F(ConfigFiles, names_the_file_that_cannot_be_read) {
  const std::string path = write("run.yaml", "# comment\ndefaults: missing.yaml\n");
  const std::string text = load_fault(path);
  EXPECT_NE(text.find("missing.yaml"), std::string::npos) << text;
  EXPECT_NE(text.find("run.yaml:2:11"), std::string::npos) << text;
  EXPECT_NE(load_fault(dir_).find(dir_), std::string::npos);
  EXPECT_FALSE(load_fault(dir_ + "/none.yaml").empty());
  EXPECT_FALSE(load_fault("/dev/zero").empty());
  EXPECT_FALSE(load_fault(write("deep.yaml", "defaults: {a: b}\n")).empty());
  EXPECT_FALSE(load_fault(write("big.yaml", std::string((1 << 20) + 1, '#'))).empty());
}

TEST_F(ConfigFiles, takes_overrides_without_a_file) {
  Config config = Config::load("", {{"rollout.num_rollout", "5"}});
  TestOptions o;
  bind_test_options(config.binder(), o);
  config.finish();
  EXPECT_EQ(o.num_rollout, 5);
}

TEST(Config, validation_faults_name_the_place) {
  Config config = Config::parse("rl: {eps_clip: 0.3}", "run.yaml", {});
  TestOptions o;
  bind_test_options(config.binder(), o);
  EXPECT_NO_THROW(config.finish());
  config.add_fault("rl.eps_clip", "0.3 is above rl.eps_clip_high = 0.2", "raise it");
  config.add_fault("optimizer.lr", "is missing", "");
  try {
    config.finish();
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("run.yaml:1:16  rl.eps_clip: 0.3 is above"), std::string::npos) << text;
    EXPECT_NE(text.find("optimizer.lr: is missing"), std::string::npos) << text;
  }
}

TEST(Config, shows_derived_values) {
  Config config = Config::parse("rl: {eps_clip: 0.3}\nreward: {rm_type: f1}", "run.yaml", {});
  TestOptions o;
  bind_test_options(config.binder(), o);
  config.finish();
  config.derive("rl.eps_clip_high", std::optional(0.3));
  config.derive("rollout.rollout_stop_token_ids", std::vector<int64_t>{});
  config.derive("reward.rm_type", "math");
  EXPECT_EQ(config.origin("rl.eps_clip_high"), "derived");
  EXPECT_EQ(config.origin("rollout.rollout_stop_token_ids"), "default");
  EXPECT_EQ(config.origin("reward.rm_type"), "run.yaml:2:19");
  EXPECT_NE(config.resolved_yaml().find("eps_clip_high: 0.3\n"), std::string::npos);
  EXPECT_NE(config.resolved_yaml().find("rm_type: f1\n"), std::string::npos);
}

}  // namespace
}  // namespace slimexx::config
