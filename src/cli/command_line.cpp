#include "cli/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"

namespace slimexx::cli {
namespace {

bool is_help(const std::string& word) { return word == "-h" || word == "--help"; }

std::string overview(bool full) {
  std::string text = "usage: slimexx VERB [flags]\n\n";
  for (const Verb& verb : list_verbs()) {
    text += fmt::format("  {:<12}{}\n", verb.name, verb.summary);
  }
  text += "\nslimexx VERB -h lists a verb's flags, slimexx VERB --help adds examples.\n";
  if (full) {
    text +=
        "\n"
        "Several ranks: mpirun -np N slimexx VERB ..., or srun; without a launcher there is one "
        "rank.\n"
        "Results go to stdout or to --output, logs to stderr. Exit status: 0 success, 2 usage or\n"
        "configuration error, 3 environment error, 4 the run failed, 5 a check failed, 130 "
        "interrupted\n"
        "after a checkpoint. NO_COLOR turns colours off.\n";
  }
  return text;
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : list_verbs()) {
    if (verb.name == name) return verb;
    names.emplace_back(verb.name);
  }
  const auto nearest = nearest_name(name, names);
  throw Error(ErrorCode::kUsage, fmt::format("unknown verb \"{}\"", name),
              nearest ? fmt::format("did you mean {}?", *nearest) : "slimexx -h lists the verbs");
}

std::string flags_hint(const Verb& verb) {
  return fmt::format("slimexx {} --help shows the flags", verb.name);
}

void refuse_extras(const CLI::App& app, const Verb& verb) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string where = fmt::format("slimexx {}", verb.name);
  const std::string word = extras.front().substr(0, extras.front().find('='));
  if (!word.starts_with('-')) {
    throw Error(ErrorCode::kUsage, fmt::format("unexpected argument \"{}\"", extras.front()),
                flags_hint(verb), where);
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const auto nearest = nearest_name(word, known);
  throw Error(ErrorCode::kUsage, fmt::format("unknown flag {}", word),
              nearest ? fmt::format("did you mean {}?", *nearest) : flags_hint(verb), where);
}

// Rewrites CLI11's "Could not convert: --n = abc" as a sentence.
std::string describe(const CLI::ParseError& error) {
  const std::string text = error.what();
  constexpr std::string_view kPrefix = "Could not convert: ";
  const size_t equals = text.find(" = ");
  if (!text.starts_with(kPrefix) || equals == std::string::npos) return text;
  return fmt::format("{} cannot be \"{}\"", text.substr(kPrefix.size(), equals - kPrefix.size()),
                     text.substr(equals + 3));
}

void parse_flags(CLI::App& app, const Verb& verb, std::vector<std::string> arguments) {
  std::ranges::reverse(arguments);  // CLI11 reads from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& e) {
    refuse_extras(app, verb);  // a missing flag is usually a misspelt one
    throw Error(ErrorCode::kUsage, describe(e), flags_hint(verb),
                fmt::format("slimexx {}", verb.name));
  }
  refuse_extras(app, verb);
}

std::string verb_help(CLI::App& app, const Verb& verb, bool full) {
  if (!full) app.footer("");
  return app.help(fmt::format("slimexx {}", verb.name));
}

}  // namespace

Invocation parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw Error(ErrorCode::kUsage, "no verb is given", "slimexx -h lists the verbs");
  }
  if (is_help(arguments[0])) return {overview(arguments[0] == "--help"), {}};
  if (arguments[0] == "--version") return parse_command_line({"version"});
  const Verb& verb = find_verb(arguments[0]);
  CLI::App app{std::string(verb.summary)};
  app.set_help_flag();
  app.allow_extras();
  Invocation invocation{{}, verb.declare(app)};
  bool verbose = false, quiet = false;
  app.add_flag("-v,--verbose", verbose, "Log debug messages too");
  app.add_flag("-q,--quiet", quiet, "Log warnings and errors only");
  bool help = false;
  app.add_flag("-h,--help", help, "-h: show this list; --help: also show examples");
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (is_help(arguments[i])) return {verb_help(app, verb, arguments[i] == "--help"), {}};
  }
  parse_flags(app, verb, {arguments.begin() + 1, arguments.end()});
  if (verbose) set_log_level(LogLevel::kDebug);
  if (quiet) set_log_level(LogLevel::kWarn);
  return invocation;
}

}  // namespace slimexx::cli
