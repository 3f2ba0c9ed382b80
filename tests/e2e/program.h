// Runs the program like a user: alone or under mpirun, in the background, with signals.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::e2e {

// A new folder that is removed at destruction.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string put(const std::string& name, std::string_view content) const;

 private:
  std::string path_;
};

std::string read_bytes(const std::string& path);

struct Finished {
  int status = -1;  // exit status; 128 + number of the signal that ended it
  std::string out, err;
  double seconds = 0;
  std::string text() const { return "status " + std::to_string(status) + "\n" + out + err; }
};

constexpr auto kTimeLimit = std::chrono::seconds(120);

// One started program in its own process group: the destructor kills all of it.
class Program {
 public:
  // `num_ranks` 0: without mpirun. `prefix`: words before the program's name, such as a shell. The
  // program sees no device unless the arguments name "cuda".
  Program(int num_ranks, const std::vector<std::string>& arguments,
          const std::vector<std::string>& prefix = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool is_running();
  // Signals the program itself; under mpirun every rank.
  void signal(int number);
  void signal_rank(int rank, int number);
  void signal_launcher(int number);  // mpirun passes it on, or ends the ranks
  // Polls until `condition` holds or the program has ended; returns whether it held.
  bool wait_until(const std::function<bool()>& condition);
  Finished wait();

 private:
  std::vector<pid_t> rank_pids() const;
  Folder folder_;
  pid_t pid_ = -1;
  int num_ranks_ = 0;
  bool is_reaped_ = false;
  int raw_status_ = 0;
  std::chrono::steady_clock::time_point start_;
};

Finished run_slimexx(int num_ranks, const std::vector<std::string>& arguments,
                     const std::vector<std::string>& prefix = {});

// The reason why tests with several ranks cannot run here; empty if they can.
std::string why_no_ranks();
// The major version of Open MPI's mpirun; 0 for any other mpirun.
int open_mpi_version();

}  // namespace slimexx::e2e
