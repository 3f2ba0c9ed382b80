// The reference pages generated from the code: options, metrics, slime's flags.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/config/config.h"
#include "slimexx/observe/metrics.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::cli {
namespace {

struct DocsFlags {
  std::string write, check;
};

std::vector<std::pair<std::string, std::string>> make_pages() {
  config::FieldLister fields;
  rl::RunConfig run;
  rl::bind(fields, run);
  return {{"config.md", config::write_config_reference(fields)},
          {"metrics.md", observe::write_metrics_reference()},
          {"slime-flags.md", config::write_flag_reference(fields)}};
}

void check_page(const std::string& path, const std::string& content) {
  if (path_exists(path) && read_text_file(path) == content) return;
  throw Error(ErrorCode::kCheck, "the page differs from the page that this program writes",
              "run slimexx docs --write FOLDER, and commit the changes", path);
}

void run_docs(const DocsFlags& flags, Session& session) {
  if (!session.is_root()) return;
  if (flags.write.empty() == flags.check.empty()) {
    throw Error(ErrorCode::kUsage, "--write or --check is missing",
                "slimexx docs --write DIR, or slimexx docs --check DIR", "slimexx docs");
  }
  for (const auto& [name, content] : make_pages()) {
    if (!flags.check.empty()) {
      check_page(join_path(flags.check, name), content);
      continue;
    }
    make_directories(flags.write);
    write_file_atomic(join_path(flags.write, name), content);
    print("{}\n", join_path(flags.write, name));
  }
}

}  // namespace

VerbBody declare_docs(CLI::App& app) {
  auto flags = std::make_shared<DocsFlags>();
  app.add_option("--write", flags->write,
                 "Write config.md, metrics.md and slime-flags.md to this folder")
      ->type_name("DIR");
  app.add_option("--check", flags->check,
                 "Exit with status 5 if the pages in this folder are out of date")
      ->type_name("DIR");
  app.footer("Examples:\n  slimexx docs --write docs/reference");
  return [flags](Session& session) { run_docs(*flags, session); };
}

}  // namespace slimexx::cli
