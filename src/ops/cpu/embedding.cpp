#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

void check_rows(const Tensor& rows, int64_t num_rows) {
  for (int64_t i = 0; i < rows.dim(0); ++i)
    SLX_CHECK(rows.i32()[i] >= 0 && rows.i32()[i] < num_rows,
              "row {} (index {}) is not in a table of {} rows", rows.i32()[i], i, num_rows);
}

}  // namespace

void gather_rows(Tensor y, Tensor x, Tensor rows) {
  check_rows(rows, x.dim(0));
  const int64_t h = y.dim(1);
  parallel_for(rows.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(y.f32() + i * y.stride(0), x.f32() + rows.i32()[i] * x.stride(0),
                  static_cast<size_t>(h) * sizeof(float));
  });
}

void embedding_shard_forward(Tensor y, Tensor table, Tensor tokens, int64_t first) {
  const auto bytes = static_cast<size_t>(y.dim(1)) * sizeof(float);
  parallel_for(tokens.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* to = y.f32() + i * y.stride(0);
      const int64_t row = tokens.i32()[i] - first;
      if (row >= 0 && row < table.dim(0)) {
        std::memcpy(to, table.f32() + row * table.stride(0), bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  });
}

// Split over columns, so that every sum runs over ascending i on one thread.
void scatter_add_rows(Tensor dx, Tensor dy, Tensor rows) {
  check_rows(rows, dx.dim(0));
  const KernelTable& isa = kernels();
  parallel_for(dx.dim(1), 128, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < rows.dim(0); ++i)
      isa.accumulate(dx.f32() + rows.i32()[i] * dx.stride(0) + begin,
                     dy.f32() + i * dy.stride(0) + begin, end - begin);
  });
}

void gather_elements(Tensor y, Tensor x, Tensor indices) {
  check_rows(indices, x.num_elements());
  for (int64_t i = 0; i < indices.dim(0); ++i) y.i32()[i] = x.i32()[indices.i32()[i]];
}

}  // namespace slimexx::ops::cpu
