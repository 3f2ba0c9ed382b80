#include "dist/mpi_backend.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include "dist/watch/slow_call.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"

namespace slimexx::dist {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;  // MPI counts are int

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::kRun,
              fmt::format("{} failed: {}", call, std::string(text, static_cast<size_t>(length))),
              "check the other ranks' logs: one of them may have stopped");
}

#define SLX_MPI(call) check_mpi((call), #call)

// A number in rank 0's memory, which all ranks access by one-sided operations. All ranks keep the
// window open (lock_all) from creation to the end: atomic operations need no further lock, and on
// busy cores an exclusive lock per ticket costs 20 to 40 times as much.
struct CounterWindow {
  MPI_Win handle = MPI_WIN_NULL;

  int64_t exchange(int64_t operand, MPI_Op op) const {
    int64_t previous = 0;
    SLX_MPI(MPI_Fetch_and_op(&operand, &previous, MPI_INT64_T, 0, 0, op, handle));
    SLX_MPI(MPI_Win_flush(0, handle));
    return previous;
  }
};

CounterWindow make_window(MPI_Comm comm, int rank) {
  CounterWindow window;
  int64_t* base = nullptr;
  SLX_MPI(MPI_Win_allocate(rank == 0 ? sizeof(int64_t) : 0, sizeof(int64_t), MPI_INFO_NULL, comm,
                           &base, &window.handle));
  SLX_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window.handle));
  return window;
}

// Borrows a window of the communicator. Freeing a window waits for all ranks, so the destructor
// only returns it: after an exception on this rank alone, that wait would never end.
class MpiCounter : public SharedCounter {
 public:
  MpiCounter(CounterWindow window, std::vector<CounterWindow>& spare)
      : window_(window), spare_(spare) {}
  ~MpiCounter() override { spare_.push_back(window_); }
  int64_t fetch_add(int64_t amount) override { return window_.exchange(amount, MPI_SUM); }

 private:
  CounterWindow window_;
  std::vector<CounterWindow>& spare_;
};

// Splits a transfer into messages of at most kMaxMessageBytes; calls `call` with each offset and
// size.
template <class Call>
void for_each_part(int64_t size_bytes, Call call) {
  for (int64_t at = 0; at < size_bytes; at += kMaxMessageBytes)
    call(at, static_cast<int>(std::min(kMaxMessageBytes, size_bytes - at)));
}

class MpiBackend : public Backend {
 public:
  MpiBackend(MPI_Comm comm, bool owns_it)
      : comm_(comm), owns_it_(owns_it), num_exceptions_(std::uncaught_exceptions()) {
    SLX_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    SLX_MPI(MPI_Comm_rank(comm_, &rank_));
    SLX_MPI(MPI_Comm_size(comm_, &size_));
  }
  // Skips calls that wait for all ranks if an exception is unwinding this rank alone.
  ~MpiBackend() override {
    if (std::uncaught_exceptions() > num_exceptions_) return;
    for (CounterWindow& window : spare_windows_) {
      MPI_Win_unlock_all(window.handle);
      MPI_Win_free(&window.handle);
    }
    if (owns_it_) MPI_Comm_free(&comm_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  tensor::Device device() const override { return {}; }
  void barrier() override { SLX_MPI(MPI_Barrier(comm_)); }

  void broadcast(tensor::Stream, char* data, int64_t size_bytes, int root) override {
    for_each_part(size_bytes, [&](int64_t at, int n) {
      SLX_MPI(MPI_Bcast(data + at, n, MPI_BYTE, root, comm_));
    });
  }

  void all_gather_ranges(tensor::Stream stream, char* data,
                         std::span<const Range> ranges) override {
    for (size_t i = 0; i < ranges.size(); ++i) {
      broadcast(stream, data + ranges[i].begin, ranges[i].size(),
                static_cast<int>(i % static_cast<size_t>(size_)));
    }
  }

  void exchange(tensor::Stream, std::span<const Message> sends,
                std::span<const Message> receives) override {
    std::vector<MPI_Request> requests;
    for (const Message& m : receives) {
      for_each_part(m.size_bytes, [&](int64_t at, int n) {
        requests.emplace_back();
        SLX_MPI(MPI_Irecv(m.data + at, n, MPI_BYTE, m.peer, 1, comm_, &requests.back()));
      });
    }
    for (const Message& m : sends) {
      for_each_part(m.size_bytes, [&](int64_t at, int n) {
        requests.emplace_back();
        SLX_MPI(MPI_Isend(m.data + at, n, MPI_BYTE, m.peer, 1, comm_, &requests.back()));
      });
    }
    SLX_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  }

  std::unique_ptr<Backend> split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    SLX_MPI(MPI_Comm_split(comm_, color, key, &part));
    auto backend = std::make_unique<MpiBackend>(part, true);
    if (backend->size() == 1) return nullptr;
    return backend;
  }

  std::unique_ptr<SharedCounter> make_counter() override {
    if (spare_windows_.empty()) spare_windows_.push_back(make_window(comm_, rank_));
    const CounterWindow window = spare_windows_.back();
    spare_windows_.pop_back();
    barrier();  // no rank still uses the window's previous counter
    if (rank_ == 0) window.exchange(0, MPI_REPLACE);
    barrier();
    return std::make_unique<MpiCounter>(window, spare_windows_);
  }

 private:
  MPI_Comm comm_;
  bool owns_it_;
  int num_exceptions_;
  int rank_ = 0, size_ = 1;
  std::vector<CounterWindow> spare_windows_;  // the same number on every rank
};

// Large launches take some seconds.
constexpr SlowCallNotice::Seconds kSlowStart{30};

int number_from_launcher(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

// The missing rank cannot be named: the rank watch starts after MPI_Init. Two ranks per host
// report, because one of them may be the missing one.
void start_library() {
  const int rank =
      number_from_launcher({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  const bool speaks = number_from_launcher({"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) < 2;
  const SlowCallNotice notice(kSlowStart, [&](SlowCallNotice::Seconds waited) {
    if (!speaks) return;
    log_warn(
        "rank {} has waited {:.0f} s in MPI_Init: another rank did not start, is stopped or cannot "
        "be reached; check the processes on all hosts, and the network that the launcher uses",
        rank, waited.count());
  });
  int provided = 0;
  SLX_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(ErrorCode::kEnvironment, "this MPI does not support multithreaded processes",
                "use another MPI build");
  }
}

}  // namespace

std::unique_ptr<Backend> start_mpi(LocalPosition& local) {
  start_library();
  MPI_Comm node = MPI_COMM_NULL;
  SLX_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  SLX_MPI(MPI_Comm_rank(node, &local.rank));
  SLX_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &local.first));
  SLX_MPI(MPI_Bcast(&local.first, 1, MPI_INT, 0, node));
  SLX_MPI(MPI_Comm_free(&node));
  auto world = std::make_unique<MpiBackend>(MPI_COMM_WORLD, false);
  if (world->size() == 1) return nullptr;
  return world;
}

void finish_mpi() { MPI_Finalize(); }
void abort_mpi(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

// Libraries append builder and build options after a comma or on further lines.
std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  const std::string first = all.substr(0, all.find_first_of(",\n"));
  return std::string(trim(first));
}

}  // namespace slimexx::dist
