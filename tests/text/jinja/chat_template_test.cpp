// Compares the interpreter with transformers' jinja2 environment (golden files made by
// scripts/golden/make_chat_template_golden.py), and tests its limits.
#include "slimexx/text/chat_template.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "test_paths.h"

namespace slimexx::text {
namespace {

constexpr int64_t kNewYear2026Noon = 1767268800;

ChatTemplate parse(const std::string& source) {
  ChatTemplate result = ChatTemplate::parse(source, "case");
  result.set_clock([] { return kNewYear2026Noon; });
  return result;
}

std::string render(const std::string& source, const std::string& variables = "{}",
                   const TemplateLimits& limits = {}) {
  return parse(source).render(parse_json(variables, "variables"), limits).text;
}

std::string error_of(const std::string& source, const std::string& variables = "{}",
                     const TemplateLimits& limits = {}) {
  try {
    return "no error: " + render(source, variables, limits).substr(0, 200);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
}

std::vector<Json> read_lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, path));
  return lines;
}

// Compares one rendering with its golden line; both may be refusals.
void expect_golden(const ChatTemplate& chat_template, const Json& variables, const Json& golden) {
  RenderedText got;
  try {
    got = chat_template.render(variables);
  } catch (const Error& error) {
    EXPECT_TRUE(golden.contains("error")) << error.what() << "\nwanted: " << golden["rendered"];
    return;
  }
  ASSERT_FALSE(golden.contains("error"))
      << "rendered " << got.text << "\njinja2: " << golden["error"];
  EXPECT_EQ(got.text, golden["rendered"].get<std::string>());
  Json spans = Json::array();
  for (const auto& [begin, end] : got.generation_spans) spans.push_back({begin, end});
  EXPECT_EQ(spans, golden.value("spans", Json::array()));
}

const std::string kData = test_data_path("text/jinja/");
const std::string kTemplates = test_data_path("golden/chat_templates/");

TEST(ChatTemplate, FeaturesRenderAsJinja2Does) {
  const Json variables = parse_json_file(kData + "variables.json");
  const auto cases = read_lines(kData + "features.jsonl");
  ASSERT_GT(cases.size(), 700u);
  for (const Json& golden : cases) {
    const auto source = golden["source"].get<std::string>();
    SCOPED_TRACE(source);
    try {
      const ChatTemplate chat_template = parse(source);
      expect_golden(chat_template, variables, golden);
    } catch (const Error& error) {
      EXPECT_TRUE(golden.contains("error")) << error.what();
    }
  }
}

TEST(ChatTemplate, RealTemplatesRenderAsTransformersDoes) {
  std::map<std::string, Json> conversations;
  for (const Json& line : read_lines(kData + "conversations.jsonl")) {
    conversations[line["name"].get<std::string>()] = line["variables"];
  }
  int checked = 0;
  for (const Json& golden : read_lines(kData + "golden.jsonl")) {
    const auto name = golden["template"].get<std::string>();
    SCOPED_TRACE(name + " " + golden["conversation"].get<std::string>());
    Json variables = conversations.at(golden["conversation"].get<std::string>());
    variables["bos_token"] = "<s>";
    variables["eos_token"] = "</s>";
    expect_golden(parse(read_text_file(kTemplates + name)), variables, golden);
    ++checked;
  }
  EXPECT_EQ(checked, 14 * 18);
}

TEST(ChatTemplate, RealTemplatesRenderAsJinja2Does) {
  const auto cases = read_lines(kTemplates + "rendered.jsonl");
  ASSERT_EQ(cases.size(), 56u);
  for (const Json& golden : cases) {
    const auto name = golden["template"].get<std::string>();
    SCOPED_TRACE(name + " " + golden["case"].get<std::string>());
    Json variables = golden["kwargs"];
    variables["bos_token"] = "<s>";
    variables["eos_token"] = "</s>";
    EXPECT_EQ(parse(read_text_file(kTemplates + name)).render(variables).text,
              golden["rendered"].get<std::string>());
  }
}

TEST(ChatTemplate, HasTheVariablesThatTransformersAlwaysPasses) {
  const ChatTemplate chat_template =
      parse("{{ tools is none }} {{ documents }} {{ add_generation_prompt }}");
  EXPECT_EQ(chat_template.render(Json::object()).text, "True None False");
  EXPECT_EQ(chat_template.render({{"tools", {1}}, {"add_generation_prompt", true}}).text,
            "False None True");
}

TEST(ChatTemplate, SpansFollowMacrosAndBlocks) {
  const auto spans = [](const std::string& source) {
    const RenderedText out = parse(source).render(Json::object());
    std::string marked = out.text;
    for (auto it = out.generation_spans.rbegin(); it != out.generation_spans.rend(); ++it) {
      marked.insert(static_cast<size_t>(it->second), "]");
      marked.insert(static_cast<size_t>(it->first), "[");
    }
    return marked;
  };
  const std::string macro =
      "{% macro m(x) %}<{% generation %}{{ x }}{% endgeneration %}>{% endmacro %}";
  EXPECT_EQ(spans(macro + "a{{ m('\xC3\xA9') }}b{{ m('z') }}"), "a<[\xC3\xA9]>b<[z]>");
  EXPECT_EQ(spans(macro + "{% set t %}q{{ m('z') }}{% endset %}a{{ t }}"), "aq<[z]>");
  EXPECT_EQ(spans(macro + "{% generation %}a{{ m('z') }}{% endgeneration %}"), "[a<z>]");
  EXPECT_EQ(spans("{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}d"),
            "[abc]d");
  EXPECT_EQ(spans(macro + "{{ m('z') ~ '' }}"), "<z>");  // any operation on the text drops its span
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  for (const char* source : {"{{ x.y.z }}", "{% if %}", "{{ raise_exception('no') }}"})
    EXPECT_NE(error_of(source).find("hint: "), std::string::npos) << source;
  EXPECT_NE(error_of("a\n{{ x.y.z }}").find("case: line 2"), std::string::npos);
  EXPECT_NE(error_of("a\n\n{% if %}").find("case: line 3"), std::string::npos);
  EXPECT_NE(error_of("{% if true %}\n\n\n{{ 'unclosed }}").find("case: line 4"), std::string::npos);
  const std::string raised = error_of("\n{{ raise_exception('no system role') }}");
  EXPECT_NE(raised.find("no system role"), std::string::npos);
  EXPECT_NE(raised.find("case: line 2"), std::string::npos);
  EXPECT_NE(error_of("{% include 'x' %}").find("include"), std::string::npos);
}

TEST(ChatTemplate, HostileTemplatesAreStopped) {
  const TemplateLimits limits{200'000, 1 << 20, 50};
  const auto stopped = [&](const std::string& source) {
    return error_of(source, R"({"l": [1, 2, 3]})", limits);
  };
  const std::vector<std::string> hostile = {
      "{{ range(10**9)|list }}",
      "{% set n = namespace(s='ab') %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}",
      "{% set n = namespace(s=[1]) %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor "
      "%}",
      "{% set n = namespace(s=[1]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor "
      "%}{{ n.s == n.s }}",
      "{% set n = namespace(s=[]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor "
      "%}{{ n.s }}",
      "{% set n = namespace(s=()) %}{% for i in range(60) %}{% set n.s = (n.s, n.s) %}{% endfor "
      "%}{{ {n.s: 1} }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% for i in l recursive %}{{ loop(l) }}{% endfor %}",
      "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 10**9 }}",
      "{{ [0] * 10**9 }}",
      "{{ 'x'.ljust(10**12) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'a'|center(10**9) }}",
      "{{ 'a'|indent(10**9, true) }}",
      "{{ 2 ** (10 ** 9) }}",
      "{{ 10 ** 50 }}",
      "{{ l|tojson(indent=10**9) }}",
      "{{ l|batch(10**9, 0)|list }}",
      "{{ l|slice(10**9)|list }}",
      "{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
      "{% set s = 'a' * 500000 %}{% for i in range(9999) %}{% set x = s.count('b') %}{% endfor %}",
      "{% set s = 'a' * 500000 %}{% for i in range(9999) %}{% set x = s.find('a' * 250000 ~ 'b') "
      "%}{% endfor %}",
      "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = n.l + ['x' * 900000] "
      "%}{% endfor %}",
      "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}",
      "{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}",
      "{{ " + std::string(9000, '-') + "1 }}",
  };
  for (const std::string& source : hostile) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(stopped(source).find("no error"), std::string::npos) << source.substr(0, 200);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 5.0) << source.substr(0, 200);
  }
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Operations whose cost grows with their operand, repeated: they reach the limit before much time
// has passed, and the error names the place. Also tests values at the ends of the integer range.
TEST(ChatTemplate, WorkAndBytesAreBounded) {
  const TemplateLimits limits{2'000'000, 4 << 20, 200};
  for (const Json& row : read_lines(kData + "limits.jsonl")) {
    const auto source = row["source"].get<std::string>();
    SCOPED_TRACE(source);
    const double begin = cpu_seconds();
    if (row.contains("error")) {
      const std::string got = error_of("\n" + source, R"({"l": [1, 2, 3], "s": "abc"})", limits);
      EXPECT_NE(got.find(row["error"].get<std::string>()), std::string::npos) << got;
      EXPECT_NE(got.find("case: line 2"), std::string::npos) << got;
      EXPECT_NE(got.find("hint: "), std::string::npos) << got;
      EXPECT_LT(got.size(), 1500u);
    } else {
      const std::string got = render(source, R"({"l": [1, 2, 3], "s": "abc"})", limits);
      if (row.contains("bytes")) {
        EXPECT_EQ(got.size(), row["bytes"].get<size_t>());
      } else {
        EXPECT_EQ(got, row["rendered"].get<std::string>());
      }
    }
    EXPECT_LT(cpu_seconds() - begin, 3.0);
  }
}

// With the default limits: takes a second or two, and far less than a gigabyte.
TEST(ChatTemplate, DefaultLimitsBoundTimeAndMemory) {
  for (const std::string source :
       {"{% set l=range(99999)|list %}{% for i in range(3000) %}{% set x %}{{ l }}{{ l }}{{ l }}"
        "{% endset %}{% endfor %}",
        "{% set s='1'*60000000 %}{% for i in range(300) %}{% set x=s|int %}{% endfor %}",
        "{% set s='1'*60000000 %}{% set d={1:2} %}{% for i in range(300) %}{% set x=d[s] %}"
        "{% endfor %}",
        "{% set s='a b '*150000 %}{% for i in range(300) %}{% set x=s.split() %}{% endfor %}",
        "{% macro m() %}{{ m(*varargs) }}{% endmacro %}{{ m(*(range(99999)|list)) }}",
        "{% macro m(n) %}{{ 'a'*60000000 }}{{ m(n+1) }}{% endmacro %}{{ m(0) }}"}) {
    const double begin = cpu_seconds();
    EXPECT_EQ(error_of(source).find("no error"), std::string::npos) << source;
    EXPECT_LT(cpu_seconds() - begin, 15.0) << source;  // allows for sanitizers and slow machines
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(usage.ru_maxrss, 800 * 1024) << "KiB";
#endif
}

// Rendering 500 messages of 4 KB with real templates needs less work than the bytes of the
// variables add to the limit.
TEST(ChatTemplate, LongConversationsStayFarBelowTheLimits) {
  std::string text;
  while (text.size() < 2048) text += "A word \xC3\xA9 of text, <b> & 12.\n";
  Json messages = Json::array();
  for (int i = 0; i < 500; ++i) {
    const bool user = i % 2 == 0;
    messages.push_back({{"role", user ? "user" : "assistant"},
                        {"content", (user ? text : "<think>\n" + text + "</think>\n\n") + text}});
  }
  TemplateLimits limits;
  limits.max_work = 0;
  for (const char* name : {"GLM-4.6.jinja", "Qwen-Qwen3-0.6B.jinja", "Qwen3-Coder.jinja",
                           "deepseek-ai-DeepSeek-V3.1.jinja",
                           "meta-llama-Llama-3.1-8B-Instruct.jinja", "trl-qwen3_training.jinja"}) {
    const Json variables = {{"messages", messages}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
    EXPECT_GT(parse(read_text_file(kTemplates + name)).render(variables, limits).text.size(),
              500'000u)
        << name;
  }
}

TEST(ChatTemplate, ManyParametersParseFast) {  // no pass compares all pairs of names
  std::string names, keywords;
  for (int i = 0; i < 50'000; ++i) {
    names += fmt::format("{}a{}", i == 0 ? "" : ",", i);
    keywords += fmt::format("{}a{}=1", i == 0 ? "" : ",", i);
  }
  const double begin = cpu_seconds();
  EXPECT_EQ(render("{% macro m(" + names + ") %}{% endmacro %}x"), "x");
  EXPECT_EQ(render("{{ dict(" + keywords + ")|length }}"), "50000");
  EXPECT_NE(error_of("{% macro m(" + names + ") %}{% endmacro %}{{ m(" + keywords + ") }}")
                .find("units of work"),
            std::string::npos);
  EXPECT_LT(cpu_seconds() - begin, 3.0);
  EXPECT_NE(error_of("{% macro m(a, b, a) %}{% endmacro %}").find("two parameters are named 'a'"),
            std::string::npos);
  EXPECT_NE(error_of("{{ dict(a=1, a=2) }}").find("out of order"), std::string::npos);
}

TEST(ChatTemplate, CyclesAreFreed) {  // the leak checker of a sanitized build checks this
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}x"), "x");
  EXPECT_EQ(render("{% macro m() %}{% macro k() %}{{ m }}{% endmacro %}{{ k() }}{% endmacro %}{% "
                   "set q = m() %}x"),
            "x");
  EXPECT_EQ(
      render(
          "{% set n = namespace() %}{% for i in [1] recursive %}{% set n.l = loop %}{% endfor %}x"),
      "x");
  EXPECT_EQ(render("{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"), "TrueFalse");
  EXPECT_EQ(error_of("{% for i in [1] %}{% set k = loop %}{% for j in [1] %}{{ 1 / 0 }}{% endfor "
                     "%}{% endfor %}")
                .find("no error"),
            std::string::npos);
}

TEST(ChatTemplate, AttributeWalksEndNowhere) {
  for (const char* walk :
       {"''.__class__.__mro__", "x.__init__.__globals__", "[]['__class__']['__base__']",
        "{}|attr('__class__')|attr('__bases__')", "range.__self__.x",
        "namespace().__class__.__init__", "'{0.__class__.__mro__}'.format(1)"}) {
    EXPECT_EQ(error_of(std::string("{{ ") + walk + " }}").find("no error"), std::string::npos)
        << walk;
  }
}

TEST(ChatTemplate, ManyMessagesStayFast) {
  Json messages = Json::array();
  for (int i = 0; i < 100'000; ++i)
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "message \xC3\xA9"}});
  const Json variables = {{"messages", messages}, {"add_generation_prompt", true}};
  const ChatTemplate chat_template = parse(read_text_file(kTemplates + "Qwen-Qwen3-0.6B.jinja"));
  const auto begin = std::chrono::steady_clock::now();
  const RenderedText out = chat_template.render(variables);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(out.text.size(), 100'000u * 10);
  EXPECT_LT(took.count(), 20.0);
  RecordProperty("seconds", std::to_string(took.count()));
}

}  // namespace
}  // namespace slimexx::text
