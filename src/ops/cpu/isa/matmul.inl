// The matmul core. Every output is one chain acc = fma(a[i,p], b[p,j], acc), p ascending, held in a
// register tile of kRows x kColumns. A tile may be stored and loaded again between blocks of p,
// which does not change any bit.
#if defined(__AVX512F__)
constexpr int kRows = 12, kColumnVecs = 2;  // 24 accumulators of 32 registers
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kRows = 6, kColumnVecs = 1;  // 12 of 16
#else
constexpr int kRows = 2, kColumnVecs = 1;  // 8 of 16
#endif
constexpr int kColumns = kColumnVecs * kLanes;

// ---- transposing -------------------------------------------------------------------------------
#if defined(__AVX512F__)
SLX_INLINE void transpose_16x16(const float* const* rows, int64_t offset, float* out, int64_t ld) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(rows[i] + offset);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {  // r[g+c]: rows g..g+3 of columns c, c+4, c+8, c+12
    const auto d = [&](int i) { return _mm512_castps_pd(t[g + i]); };
    r[g + 0] = _mm512_castpd_ps(_mm512_unpacklo_pd(d(0), d(2)));
    r[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(d(0), d(2)));
    r[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(d(1), d(3)));
    r[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(d(1), d(3)));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    t[12 + c] = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
  }
  // Ascending, so that the next store repairs what a store wider than `ld` overwrote.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) _mm512_storeu_ps(out + c * ld, _mm512_shuffle_f32x4(t[c], t[4 + c], 0x88));
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c)
    _mm512_storeu_ps(out + (4 + c) * ld, _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0x88));
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c)
    _mm512_storeu_ps(out + (8 + c) * ld, _mm512_shuffle_f32x4(t[c], t[4 + c], 0xdd));
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c)
    _mm512_storeu_ps(out + (12 + c) * ld, _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0xdd));
}
#else
SLX_INLINE void transpose_16x16(const float* const* rows, int64_t offset, float* out, int64_t ld) {
  typedef float QuadUnaligned __attribute__((vector_size(16), aligned(4), may_alias));
  for (int c = 0; c < 16; c += 4) {
    Quad column[4][4];  // [column][four rows]
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      Quad r[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        r[i] = *reinterpret_cast<const QuadUnaligned*>(rows[4 * g + i] + offset + c);
      const Quad t0 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
      const Quad t1 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
      const Quad t2 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
      const Quad t3 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
      column[0][g] = __builtin_shufflevector(t0, t2, 0, 1, 4, 5);
      column[1][g] = __builtin_shufflevector(t0, t2, 2, 3, 6, 7);
      column[2][g] = __builtin_shufflevector(t1, t3, 0, 1, 4, 5);
      column[3][g] = __builtin_shufflevector(t1, t3, 2, 3, 6, 7);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g)
        *reinterpret_cast<QuadUnaligned*>(out + (c + i) * ld + 4 * g) = column[i][g];
  }
}
#endif

alignas(64) constexpr float kZeros[kLanes] = {};

// out[p*ld + j] = rows[j][p], j < 16, p < k. Rows beyond `num_rows` read as zero. Columns [width,
// 16) of each out row may be overwritten before the next row is written, and so may 16 floats past
// the end. Each row's data for the next strip lies `ahead` floats later and is prefetched (0: no
// prefetch): rows lie pages apart, so the hardware does not prefetch them.
SLX_INLINE void transpose_strip(const float* const* rows, int64_t num_rows, int64_t k, float* out,
                                int64_t ld, int64_t width, int64_t ahead) {
  int64_t p = 0;
  for (; p + kLanes <= k; p += kLanes) {
    const float* shifted[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      shifted[j] = j < num_rows ? rows[j] + p : kZeros;
      if (ahead > 0) __builtin_prefetch(shifted[j] + ahead, 0, 2);
    }
    transpose_16x16(shifted, 0, out + p * ld, ld);
  }
  for (; p < k; ++p)
    for (int64_t j = 0; j < width; ++j) out[p * ld + j] = j < num_rows ? rows[j][p] : 0.0f;
}

void pack_a(const float* a, int64_t row_stride, int64_t column_stride, int64_t m, int64_t k,
            float* packed) {
  for (int64_t i0 = 0; i0 < m; i0 += kRows) {
    const int64_t width = m - i0 < kRows ? m - i0 : kRows;
    float* panel = packed + i0 * k;
    const float* source = a + i0 * row_stride;
    if (column_stride == 1) {
      const float* rows[kLanes] = {};
      for (int64_t j = 0; j < width; ++j) rows[j] = source + j * row_stride;
      transpose_strip(rows, width, k, panel, width, width, 0);
    } else if (row_stride == 1 && i0 + kLanes <= m) {
      // Stores all lanes: each row of the panel overwrites the surplus of the row before.
      for (int64_t p = 0; p < k; ++p) store(panel + p * width, load(source + p * column_stride));
    } else {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < width; ++j)
          panel[p * width + j] = source[j * row_stride + p * column_stride];
    }
  }
}

void pack_b(const float* b, int64_t n_stride, int64_t k_stride, int64_t n, int64_t k, float* packed) {
  for (int64_t j0 = 0; j0 < kColumns; j0 += kLanes) {
    const int64_t width = n - j0 < 0 ? 0 : (n - j0 < kLanes ? n - j0 : kLanes);
    if (k_stride == 1) {
      const float* rows[kLanes] = {};
      for (int64_t j = 0; j < width; ++j) rows[j] = b + (j0 + j) * n_stride;
      transpose_strip(rows, width, k, packed + j0, kColumns, kLanes, kColumns * n_stride);
    } else {
      for (int64_t p = 0; p < k; ++p) {
        // Prefetch the next panel's part of this row, as in transpose_strip.
        __builtin_prefetch(b + p * k_stride + j0 + kColumns, 0, 2);
        store(packed + p * kColumns + j0, load_lanes(width > 0 ? b + p * k_stride + j0 : b, width));
      }
    }
  }
}

void transpose_rows(const float* const* rows, int64_t num_rows, int64_t dim, float* out) {
  for (int64_t j0 = 0; j0 < kScoreColumns; j0 += kLanes) {
    const int64_t width = num_rows - j0 < 0 ? 0 : (num_rows - j0 < kLanes ? num_rows - j0 : kLanes);
    transpose_strip(rows + j0, width, dim, out + j0, kScoreColumns, kLanes, 0);
  }
}

// ---- the register tile ----------------------------------------------------------------------------
struct TileArguments {
  int64_t k;
  const float* a;
  int64_t a_column_stride;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  int64_t n;  // valid columns, <= kColumns
  bool accumulate;
  const float* bias;
};

SLX_INLINE int64_t lanes_of(int64_t n, int v) { return n - v * kLanes < 0 ? 0 : n - v * kLanes; }

template <int kTileRows, int kRowStride>
void multiply_tile(const TileArguments& t) {
  Vec acc[kTileRows][kColumnVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kColumnVecs; ++v)
      acc[i][v] = t.accumulate && lanes_of(t.n, v) > 0
                      ? load_lanes(t.c + i * t.ldc + v * kLanes, lanes_of(t.n, v))
                      : zero();
  const float* a = t.a;
  const float* b = t.b;
  const int64_t a_column_stride = t.a_column_stride, ldb = t.ldb;
  for (int64_t p = t.k; p > 0; --p, a += a_column_stride, b += ldb) {
    Vec bv[kColumnVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kColumnVecs; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const Vec av = broadcast(a[i * kRowStride]);
#pragma GCC unroll 4
      for (int v = 0; v < kColumnVecs; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kColumnVecs; ++v) {
      if (t.bias != nullptr) acc[i][v] = acc[i][v] + load(t.bias + v * kLanes);
      if (lanes_of(t.n, v) > 0) store_lanes(t.c + i * t.ldc + v * kLanes, acc[i][v], lanes_of(t.n, v));
    }
}

using TileFunction = void (*)(const TileArguments&);

// The function for a tile of `rows` rows: kRows, or fewer at the edge.
template <int kRowStride, int kTileRows = kRows>
SLX_INLINE TileFunction tile_function(int64_t rows) {
  if constexpr (kTileRows == 1) {
    return multiply_tile<1, kRowStride>;
  } else {
    return rows == kTileRows ? multiply_tile<kTileRows, kRowStride>
                             : tile_function<kRowStride, kTileRows - 1>(rows);
  }
}

void multiply_panel(int64_t m, int64_t n, int64_t k, const float* packed_a, const float* packed_b,
                    float* c, int64_t ldc, bool accumulate, const float* bias) {
  for (int64_t i = 0; i < m; i += kRows) {
    const int64_t rows = m - i < kRows ? m - i : kRows;
    tile_function<1>(rows)({k, packed_a + i * k, rows, packed_b, kColumns, c + i * ldc, ldc, n, accumulate, bias});
  }
}

void multiply_block(const BlockProduct& q) {
  for (int64_t j = 0; j < q.n; j += kColumns)
    for (int64_t i = 0; i < q.m; i += kRows) {
      const int64_t rows = q.m - i < kRows ? q.m - i : kRows;
      const int64_t columns = q.n - j < kColumns ? q.n - j : kColumns;
      const auto tile = q.a_row_stride == 1 ? tile_function<1>(rows) : tile_function<kScoreColumns>(rows);
      tile({q.k, q.a + i * q.a_row_stride, q.a_column_stride, q.b + j, q.ldb, q.c + i * q.ldc + j, q.ldc,
            columns, q.accumulate, nullptr});
    }
}
