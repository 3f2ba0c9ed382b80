// The verbs that the program has. Each is one cmd_<name>.cpp that declares its flags and gives back
// what to run once they are parsed, and one line in verbs.cpp.
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

// What a verb runs in.
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
