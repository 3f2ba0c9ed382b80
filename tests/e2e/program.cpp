#include "program.h"
#include "test_paths.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace slimexx::e2e {
namespace {

using Clock = std::chrono::steady_clock;

// The rank that Open MPI gave a process, from its environment; -1 if it has none.
int rank_of(pid_t pid) {
  const std::string all = read_bytes("/proc/" + std::to_string(pid) + "/environ");
  const std::string key = "OMPI_COMM_WORLD_RANK=";
  for (size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) {
    if (all.compare(at, key.size(), key) == 0) return std::atoi(all.c_str() + at + key.size());
    if (all.find('\0', at) == std::string::npos) break;
  }
  return -1;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_bytes("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');  // the name in parentheses may hold anything
  return end == std::string::npos ? -1 : std::atoi(stat.c_str() + end + 4);
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && parent_of(pid) == parent) children.push_back(pid);
  }
  return children;
}

std::vector<std::string> command_of(int num_ranks, const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& prefix) {
  std::vector<std::string> command;
  if (num_ranks > 0) {
    // By default mpirun would bind the ranks of every run to the same first cores.
    command = {"mpirun", "--allow-run-as-root",    "--oversubscribe", "--bind-to", "none",
               "-np",    std::to_string(num_ranks)};
  }
  command.insert(command.end(), prefix.begin(), prefix.end());
  command.push_back(slimexx_binary());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// Hide devices unless the arguments name cuda: the other tests are for the CPU, even if there is a
// device.
void hide_devices(const std::vector<std::string>& arguments) {
  static const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  static const std::string before = visible == nullptr ? "" : visible;
  if (std::ranges::find(arguments, "cuda") == arguments.end()) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  } else if (visible == nullptr) {
    unsetenv("CUDA_VISIBLE_DEVICES");
  } else {
    setenv("CUDA_VISIBLE_DEVICES", before.c_str(), 1);
  }
}

}  // namespace

Folder::Folder() {
  path_ = (std::filesystem::temp_directory_path() / "slx_e2e_XXXXXX").string();
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

Program::Program(int num_ranks, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& prefix)
    : num_ranks_(num_ranks), start_(Clock::now()) {
  std::vector<std::string> command = command_of(num_ranks, arguments, prefix);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = folder_ / "stdout", err = folder_ / "stderr";
  hide_devices(arguments);
  // Two programs that start at the same time may fail to make a shared folder ("File exists").
  setenv("OMPI_MCA_orte_tmpdir_base", folder_.path().c_str(), 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int error = posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
}

Program::~Program() {
  if (!is_running()) return;
  for (const pid_t rank : rank_pids()) kill(rank, SIGKILL);
  kill(-pid_, SIGKILL);
  waitpid(pid_, &raw_status_, 0);
}

bool Program::is_running() {
  if (!is_reaped_ && waitpid(pid_, &raw_status_, WNOHANG) != 0) is_reaped_ = true;
  return !is_reaped_;
}

std::vector<pid_t> Program::rank_pids() const {
  if (num_ranks_ == 0) return {pid_};
  std::vector<std::pair<int, pid_t>> found;
  for (const pid_t pid : children_of(pid_)) {
    if (const int rank = rank_of(pid); rank >= 0) found.emplace_back(rank, pid);
  }
  std::sort(found.begin(), found.end());
  std::vector<pid_t> pids;
  for (const auto& [rank, pid] : found) pids.push_back(pid);
  return pids;
}

void Program::signal(int number) {
  if (!is_running()) return;
  for (const pid_t pid : rank_pids()) kill(pid, number);
}

void Program::signal_rank(int rank, int number) {
  if (!is_running()) return;
  const auto pids = rank_pids();
  if (static_cast<size_t>(rank) < pids.size()) kill(pids[static_cast<size_t>(rank)], number);
}

void Program::signal_launcher(int number) {
  if (is_running()) kill(pid_, number);
}

bool Program::wait_until(const std::function<bool()>& condition) {
  while (Clock::now() - start_ < kTimeLimit) {
    if (condition()) return true;
    if (!is_running()) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

Finished Program::wait() {
  while (is_running() && Clock::now() - start_ < kTimeLimit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  Finished f;
  f.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  f.out = read_bytes(folder_ / "stdout");
  f.err = read_bytes(folder_ / "stderr");
  if (is_running()) {
    f.err += "\n(the test ended it after its time limit)\n";
    return f;  // the destructor kills it; status stays -1
  }
  f.status = WIFEXITED(raw_status_) ? WEXITSTATUS(raw_status_) : 128 + WTERMSIG(raw_status_);
  return f;
}

Finished run_slimexx(int num_ranks, const std::vector<std::string>& arguments,
                     const std::vector<std::string>& prefix) {
  return Program(num_ranks, arguments, prefix).wait();
}

std::string why_no_ranks() {
  static const std::string reason = [] {
    if (std::system("command -v mpirun > /dev/null 2>&1") != 0) return "mpirun is not there";
    const bool built = run_slimexx(0, {"version"}).out.find("mpi yes") != std::string::npos;
    return built ? "" : "one rank: built without MPI";
  }();
  return reason;
}

int open_mpi_version() {
  static const int version = [] {
    FILE* const pipe = popen("mpirun --version", "r");
    int major = 0;
    if (pipe == nullptr || fscanf(pipe, "mpirun (Open MPI) %d", &major) != 1) major = 0;
    if (pipe != nullptr) pclose(pipe);
    return major;
  }();
  return version;
}

}  // namespace slimexx::e2e
