// The order in which rows of a data set are drawn: epoch by epoch, each in file order or shuffled
// exactly as Python's random.seed(seed + epoch); random.shuffle(range(n)), so that runs can be
// compared with trainers that shuffle in Python.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace slimexx::data {

// Position of a source; plain data for checkpoints. The last four fields identify the order.
struct Cursor {
  int64_t epoch = 0;
  int64_t offset = 0;  // rows already drawn in this epoch
  bool shuffle = false;
  int64_t seed = 0;
  int64_t num_rows = 0;
  std::string content_hash;
  // Rows drawn since the run began, which is also the number of the next row.
  int64_t num_drawn() const { return epoch * num_rows + offset; }
};

// The permutation of [0, n) that Python's random.shuffle makes after random.seed(seed).
std::vector<int64_t> python_shuffle(int64_t n, int64_t seed);

class EpochOrder {
 public:
  // num_rows > 0. content_hash identifies the data; see restore.
  EpochOrder(int64_t num_rows, bool shuffle, int64_t seed, std::string content_hash);

  // The next k rows (k >= 0); continues into the next epoch when an epoch ends.
  std::vector<int64_t> draw(int64_t k);

  const Cursor& cursor() const { return cursor_; }
  // Throws Error(kInput) if the cursor belongs to other data, another seed or another order.
  void restore(const Cursor& cursor);

 private:
  void arrange_epoch();

  Cursor cursor_;
  std::vector<int64_t> permutation_;  // of cursor_.epoch
};

}  // namespace slimexx::data
