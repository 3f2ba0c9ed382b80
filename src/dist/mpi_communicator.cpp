#include "mpi_communicator.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"

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
              "look at the other ranks' logs: one of them may have stopped");
}

#define SLX_MPI(call) check_mpi((call), #call)

// Memory of rank 0 for one number that all ranks reach one-sided. Every rank keeps it open for
// access from its making to its end: atomic operations need no lock of their own, and on busy cores
// an exclusive lock a ticket costs 20 to 40 times as much.
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

// Borrows a window of its communicator. Freeing one waits for all ranks, so a counter that goes
// while an exception of this rank alone passes must not do it: it would wait for ever.
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

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm comm) : comm_(comm) {
    SLX_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    SLX_MPI(MPI_Comm_rank(comm_, &rank_));
    SLX_MPI(MPI_Comm_size(comm_, &size_));
  }
  ~MpiCommunicator() override {
    for (CounterWindow& window : spare_windows_) {
      MPI_Win_unlock_all(window.handle);
      MPI_Win_free(&window.handle);
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { SLX_MPI(MPI_Barrier(comm_)); }

  std::string broadcast(const std::string& bytes, int root) override {
    auto n = static_cast<int64_t>(bytes.size());
    SLX_MPI(MPI_Bcast(&n, 1, MPI_INT64_T, root, comm_));
    std::string result = rank_ == root ? bytes : std::string(static_cast<size_t>(n), '\0');
    for (int64_t done = 0; done < n; done += kMaxMessageBytes) {
      const auto part = static_cast<int>(std::min(kMaxMessageBytes, n - done));
      SLX_MPI(MPI_Bcast(result.data() + done, part, MPI_BYTE, root, comm_));
    }
    return result;
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    std::vector<std::string> result;
    for (int root = 0; root < size_; ++root)
      result.push_back(broadcast(root == rank_ ? bytes : std::string(), root));
    return result;
  }

  void all_reduce_sum(std::span<double> values) override {
    const std::vector<double> all = gather_doubles(values);
    std::fill(values.begin(), values.end(), 0.0);
    for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
      for (size_t i = 0; i < values.size(); ++i) values[i] += all[r * values.size() + i];
    }
  }

  void all_reduce_max(std::span<double> values) override {
    const std::vector<double> all = gather_doubles(values);
    for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::max(values[i], all[r * values.size() + i]);
    }
  }

  // Everyone sends everyone its slice, then adds what came in rank order.
  void reduce_scatter_sum(std::span<float> data, std::span<const Range> ranges,
                          std::span<float> scratch) override {
    SLX_CHECK_EQ(static_cast<int>(ranges.size()), size_);
    const Range mine = ranges[static_cast<size_t>(rank_)];
    SLX_CHECK_GE(static_cast<int64_t>(scratch.size()), mine.size() * size_);
    constexpr int64_t kPart = kMaxMessageBytes / 4;
    std::vector<MPI_Request> requests;
    for (int peer = 0; peer < size_; ++peer) {
      for (int64_t at = 0; at < mine.size(); at += kPart) {
        requests.emplace_back();
        SLX_MPI(MPI_Irecv(scratch.data() + peer * mine.size() + at,
                          static_cast<int>(std::min(kPart, mine.size() - at)), MPI_FLOAT, peer, 1,
                          comm_, &requests.back()));
      }
    }
    for (int peer = 0; peer < size_; ++peer) {
      const Range theirs = ranges[static_cast<size_t>(peer)];
      for (int64_t at = 0; at < theirs.size(); at += kPart) {
        requests.emplace_back();
        SLX_MPI(MPI_Isend(data.data() + theirs.begin + at,
                          static_cast<int>(std::min(kPart, theirs.size() - at)), MPI_FLOAT, peer, 1,
                          comm_, &requests.back()));
      }
    }
    SLX_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    float* out = data.data() + mine.begin;
    for (int64_t i = 0; i < mine.size(); ++i) {
      float sum = scratch[static_cast<size_t>(i)];
      for (int64_t peer = 1; peer < size_; ++peer)
        sum += scratch[static_cast<size_t>(peer * mine.size() + i)];
      out[i] = sum;
    }
  }

  void all_gather_ranges(void* data, int64_t element_bytes,
                         std::span<const Range> ranges) override {
    for (int root = 0; root < size_; ++root) {
      const Range range = ranges[static_cast<size_t>(root)];
      char* base = static_cast<char*>(data) + range.begin * element_bytes;
      const int64_t n = range.size() * element_bytes;
      for (int64_t done = 0; done < n; done += kMaxMessageBytes) {
        SLX_MPI(MPI_Bcast(base + done, static_cast<int>(std::min(kMaxMessageBytes, n - done)),
                          MPI_BYTE, root, comm_));
      }
    }
  }

  std::unique_ptr<SharedCounter> make_counter() override {
    if (spare_windows_.empty()) spare_windows_.push_back(make_window(comm_, rank_));
    const CounterWindow window = spare_windows_.back();
    spare_windows_.pop_back();
    barrier();  // nobody draws from its last use any more
    if (rank_ == 0) window.exchange(0, MPI_REPLACE);
    barrier();
    return std::make_unique<MpiCounter>(window, spare_windows_);
  }

 private:
  std::vector<double> gather_doubles(std::span<const double> values) {
    std::vector<double> all(values.size() * static_cast<size_t>(size_));
    const int n = static_cast<int>(values.size());
    SLX_MPI(MPI_Allgather(values.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, comm_));
    return all;
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::vector<CounterWindow> spare_windows_;  // the same number on every rank
};

}  // namespace

std::unique_ptr<Communicator> start_mpi(LocalPosition& local) {
  int provided = 0;
  SLX_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(ErrorCode::kEnvironment, "this MPI does not support a process with threads",
                "use another MPI build");
  }
  MPI_Comm node = MPI_COMM_NULL;
  SLX_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  SLX_MPI(MPI_Comm_rank(node, &local.rank));
  SLX_MPI(MPI_Comm_size(node, &local.size));
  SLX_MPI(MPI_Comm_free(&node));
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD);
}

void finish_mpi() { MPI_Finalize(); }
void abort_mpi(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

}  // namespace slimexx::dist
