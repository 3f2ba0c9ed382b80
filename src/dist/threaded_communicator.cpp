// Ranks as threads: the collectives' semantics without a launcher, for tests.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "slimexx/base/check.h"
#include "slimexx/dist/communicator.h"

namespace slimexx::dist {
namespace {

struct Shared {
  explicit Shared(int size_)
      : size(size_), sync(size_), slots(static_cast<size_t>(size_)), pointers(slots.size()) {}
  int size;
  std::barrier<> sync;
  std::vector<std::string> slots;
  std::vector<void*> pointers;
  std::shared_ptr<std::atomic<int64_t>> counter;
};

class AtomicCounter : public SharedCounter {
 public:
  explicit AtomicCounter(std::shared_ptr<std::atomic<int64_t>> value) : value_(std::move(value)) {}
  int64_t fetch_add(int64_t amount) override { return value_->fetch_add(amount); }

 private:
  std::shared_ptr<std::atomic<int64_t>> value_;
};

class ThreadedCommunicator : public Communicator {
 public:
  ThreadedCommunicator(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return shared_.size; }
  void barrier() override { shared_.sync.arrive_and_wait(); }

  std::string broadcast(const std::string& bytes, int root) override {
    return all_gather(rank_ == root ? bytes : std::string())[static_cast<size_t>(root)];
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    shared_.slots[static_cast<size_t>(rank_)] = bytes;
    barrier();
    std::vector<std::string> result = shared_.slots;
    barrier();
    return result;
  }

  void all_reduce_sum(std::span<double> values) override {
    const auto all = gather_doubles(values);
    std::fill(values.begin(), values.end(), 0.0);
    for (const auto& other : all) {
      for (size_t i = 0; i < values.size(); ++i) values[i] += other[i];
    }
  }

  void all_reduce_max(std::span<double> values) override {
    for (const auto& other : gather_doubles(values)) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], other[i]);
    }
  }

  void reduce_scatter_sum(std::span<float> data, std::span<const Range> ranges,
                          std::span<float> scratch) override {
    const Range mine = ranges[static_cast<size_t>(rank_)];
    SLX_CHECK_GE(static_cast<int64_t>(scratch.size()), mine.size());
    publish(data.data());
    for (int64_t i = 0; i < mine.size(); ++i) {
      float sum = peer<float>(0)[mine.begin + i];
      for (int r = 1; r < shared_.size; ++r) sum += peer<float>(r)[mine.begin + i];
      scratch[static_cast<size_t>(i)] = sum;
    }
    barrier();
    std::copy_n(scratch.begin(), mine.size(), data.begin() + mine.begin);
  }

  void all_gather_ranges(void* data, int64_t element_bytes,
                         std::span<const Range> ranges) override {
    publish(data);
    for (int r = 0; r < shared_.size; ++r) {
      if (r == rank_) continue;
      const Range range = ranges[static_cast<size_t>(r)];
      std::memcpy(static_cast<char*>(data) + range.begin * element_bytes,
                  peer<char>(r) + range.begin * element_bytes,
                  static_cast<size_t>(range.size() * element_bytes));
    }
    barrier();
  }

  std::unique_ptr<SharedCounter> make_counter() override {
    if (rank_ == 0) shared_.counter = std::make_shared<std::atomic<int64_t>>(0);
    barrier();
    auto counter = std::make_unique<AtomicCounter>(shared_.counter);
    barrier();
    return counter;
  }

 private:
  void publish(void* pointer) {
    shared_.pointers[static_cast<size_t>(rank_)] = pointer;
    barrier();
  }
  template <class T>
  const T* peer(int rank) const {
    return static_cast<const T*>(shared_.pointers[static_cast<size_t>(rank)]);
  }
  std::vector<std::vector<double>> gather_doubles(std::span<const double> values) {
    std::vector<std::vector<double>> all;
    for (const auto& bytes : all_gather(
             std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()))) {
      all.emplace_back(values.size());
      std::memcpy(all.back().data(), bytes.data(), bytes.size());
    }
    return all;
  }

  Shared& shared_;
  int rank_;
};

}  // namespace

void run_threaded_ranks(int size, const std::function<void(Communicator&)>& body) {
  Shared shared(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        ThreadedCommunicator communicator(shared, rank);
        try {
          body(communicator);
        } catch (...) {
          errors[static_cast<size_t>(rank)] = std::current_exception();
          shared.sync.arrive_and_drop();  // the others are not left waiting
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace slimexx::dist
