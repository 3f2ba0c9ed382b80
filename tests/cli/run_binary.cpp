#include "run_binary.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace slimexx::cli {
namespace {

constexpr auto kTimeLimit = std::chrono::seconds(60);

int wait_or_kill(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Finished run(std::vector<std::string> command) {
  const Folder folder;
  const std::string out = folder / "stdout", err = folder / "stderr";
  // These are the CPU's tests, on machines with a device too.
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
  const int status = wait_or_kill(pid);
  return {status, read_bytes(out), read_bytes(err)};
}

}  // namespace

Finished run_slimexx(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {SLX_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(std::move(command));
}

Finished run_slimexx_ranks(int num_ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"mpirun", "--allow-run-as-root",     "--oversubscribe",
                                      "-np",    std::to_string(num_ranks), SLX_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(std::move(command));
}

bool has_mpirun() {
  static const bool found = std::system("command -v mpirun > /dev/null 2>&1") == 0;
  return found;
}

Folder::Folder() {
  path_ = (std::filesystem::temp_directory_path() / "slx_cli_XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path_);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::put(const std::string& name, std::string_view content) const {
  const std::string path = *this / name;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string golden_model(const std::string& name) {
  return std::string(SLX_TEST_DATA) + "/golden/models/" + name;
}

const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> names = {
      "glm4_no_bias", "llama", "llama3_scaled_tied_biased", "qwen2_untied", "qwen3_tied_mqa"};
  return names;
}

std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, "a result"));
  return rows;
}

}  // namespace slimexx::cli
