#include "ops/cpu/product.h"

#include <algorithm>

#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kMaxTileRows = 384;       // rows of A packed at once: kDepth * 384 floats, in L2
constexpr int64_t kDepth = 256;             // k of one block: a packed panel of B stays in L1
constexpr int64_t kSmallProduct = 1 << 16;  // multiply-adds; smaller products run on one thread
constexpr int64_t kMinTileColumns = 256;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// How the output is split over the threads, and k for the caches. The split does not change any
// bit.
struct Tiling {
  int64_t rows, columns, depth;  // of one tile
  int64_t row_tiles, column_tiles;
};

Tiling choose_tiling(const Product& q, const KernelTable& isa) {
  Tiling t{};
  t.depth = std::min(q.k, kDepth);
  t.row_tiles = divide_up(q.m, kMaxTileRows);
  t.rows = round_up(divide_up(q.m, t.row_tiles), isa.rows);
  t.row_tiles = divide_up(q.m, t.rows);
  const int64_t threads = q.m * q.n * q.k < kSmallProduct ? 1 : num_threads();
  const int64_t wanted = threads == 1 ? 1 : divide_up(4 * threads, t.row_tiles);
  // Few rows: narrow tiles cost nothing, since A is small. Many rows: tiles must be wide, since
  // each packs A again.
  const int64_t narrowest = q.m <= 4 * isa.rows ? 4 * isa.columns : kMinTileColumns;
  t.columns = round_up(
      std::max(divide_up(q.n, wanted), std::min(narrowest, divide_up(q.n, threads))), isa.columns);
  t.column_tiles = divide_up(q.n, t.columns);
  return t;
}

void multiply_tile(const Product& q, const KernelTable& isa, const Tiling& tiling, int64_t i0,
                   int64_t j0) {
  const int64_t m = std::min(tiling.rows, q.m - i0);
  const int64_t n_end = std::min(j0 + tiling.columns, q.n);
  float* packed_a = thread_scratch(Scratch::kPackedA, tiling.rows * tiling.depth + 16);
  ScratchCarver carver(thread_scratch(Scratch::kPackedB, (tiling.depth + 1) * isa.columns + 32));
  float* bias = carver.take(isa.columns);
  float* packed_b = carver.take(tiling.depth * isa.columns + 16);
  for (int64_t p = 0; p < q.k; p += tiling.depth) {
    const int64_t k = std::min(tiling.depth, q.k - p);
    const bool last = p + k == q.k;
    isa.pack_a(q.a + i0 * q.a_row_stride + p * q.a_column_stride, q.a_row_stride, q.a_column_stride,
               m, k, packed_a);
    for (int64_t j = j0; j < n_end; j += isa.columns) {
      const int64_t n = std::min(isa.columns, n_end - j);
      isa.pack_b(q.b + j * q.b_n_stride + p * q.b_k_stride, q.b_n_stride, q.b_k_stride, n, k,
                 packed_b);
      if (last && q.bias != nullptr) {
        std::copy_n(q.bias + j, n, bias);
        std::fill(bias + n, bias + isa.columns, 0.0f);
      }
      isa.multiply_panel(m, n, k, packed_a, packed_b, q.c + i0 * q.ldc + j, q.ldc,
                         q.accumulate || p > 0, last && q.bias != nullptr ? bias : nullptr);
    }
  }
}

// k = 0: every sum is empty.
void write_empty_sums(const Product& q) {
  if (q.accumulate) return;
  for (int64_t i = 0; i < q.m; ++i)
    for (int64_t j = 0; j < q.n; ++j)
      q.c[i * q.ldc + j] = 0.0f + (q.bias != nullptr ? q.bias[j] : 0.0f);
}

}  // namespace

Product forward_product(int64_t m, int64_t n, int64_t k, Rows y, Rows x, const float* w) {
  return {.m = m,
          .n = n,
          .k = k,
          .a = x.data,
          .a_row_stride = x.stride,
          .a_column_stride = 1,
          .b = w,
          .b_n_stride = k,
          .b_k_stride = 1,
          .c = y.data,
          .ldc = y.stride};
}

Product input_gradient(int64_t m, int64_t n, int64_t k, Rows dx, Rows dy, const float* w) {
  return {.m = m,
          .n = k,
          .k = n,
          .a = dy.data,
          .a_row_stride = dy.stride,
          .a_column_stride = 1,
          .b = w,
          .b_n_stride = 1,
          .b_k_stride = k,
          .c = dx.data,
          .ldc = dx.stride};
}

Product weight_gradient(int64_t m, int64_t n, int64_t k, float* dw, Rows dy, Rows x,
                        bool accumulate) {
  return {.m = n,
          .n = k,
          .k = m,
          .a = dy.data,
          .a_row_stride = 1,
          .a_column_stride = dy.stride,
          .b = x.data,
          .b_n_stride = 1,
          .b_k_stride = x.stride,
          .c = dw,
          .ldc = k,
          .accumulate = accumulate};
}

void multiply(const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) return write_empty_sums(product);
  const KernelTable& isa = kernels();
  const Tiling tiling = choose_tiling(product, isa);
  const int64_t num_tiles = tiling.row_tiles * tiling.column_tiles;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile)
      multiply_tile(product, isa, tiling, tile % tiling.row_tiles * tiling.rows,
                    tile / tiling.row_tiles * tiling.columns);
  };
  parallel_for(num_tiles, 1, run);
}

}  // namespace slimexx::ops::cpu
