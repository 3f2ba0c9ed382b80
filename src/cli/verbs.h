// The verbs of the program. Each has one line in verbs.cpp and one cmd_<name>.cpp, which declares
// the flags and returns the body to run after parsing.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/dist/world.h"

namespace CLI {
class App;
}

namespace slimexx::cli {

// The environment of a running verb.
struct Session {
  dist::World& world;
  std::vector<std::string> words;  // the command line as typed, the program first
  bool is_root() const { return world.rank() == 0; }
};

using VerbBody = std::function<void(Session&)>;

struct Verb {
  std::string_view name, summary;
  VerbBody (*declare)(CLI::App& app);  // adds the flags; the body runs after they are parsed
};

const std::vector<Verb>& list_verbs();

VerbBody declare_train(CLI::App& app);
VerbBody declare_eval(CLI::App& app);
VerbBody declare_convert_hf(CLI::App& app);
VerbBody declare_score(CLI::App& app);
VerbBody declare_tokenize(CLI::App& app);
VerbBody declare_grade(CLI::App& app);
VerbBody declare_generate(CLI::App& app);
VerbBody declare_init(CLI::App& app);
VerbBody declare_samples(CLI::App& app);
VerbBody declare_describe(CLI::App& app);
VerbBody declare_plan(CLI::App& app);
VerbBody declare_doctor(CLI::App& app);
VerbBody declare_docs(CLI::App& app);
VerbBody declare_version(CLI::App& app);

}  // namespace slimexx::cli
