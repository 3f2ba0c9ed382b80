// Vec: sixteen floats, whatever the register width. Add only operations that round once per lane
// (or sum trees written out here), so that the bits of a lane never depend on its neighbours.
#if defined(__AVX512F__)
constexpr const char* kName = "avx512";
constexpr int kParts = 1;
typedef float Native __attribute__((vector_size(64)));
typedef int32_t NativeInt __attribute__((vector_size(64)));
typedef float NativeUnaligned __attribute__((vector_size(64), aligned(4), may_alias));
#elif defined(__AVX2__) && defined(__FMA__)
constexpr const char* kName = "avx2";
constexpr int kParts = 2;
typedef float Native __attribute__((vector_size(32)));
typedef int32_t NativeInt __attribute__((vector_size(32)));
typedef float NativeUnaligned __attribute__((vector_size(32), aligned(4), may_alias));
#else
constexpr const char* kName = "generic";
constexpr int kParts = 4;
typedef float Native __attribute__((vector_size(16)));
typedef int32_t NativeInt __attribute__((vector_size(16)));
typedef float NativeUnaligned __attribute__((vector_size(16), aligned(4), may_alias));
#endif
constexpr int kLanes = 16;
constexpr int kNativeLanes = kLanes / kParts;

#define SLX_INLINE inline __attribute__((always_inline))
#define SLX_LAMBDA __attribute__((always_inline))
#define SLX_EACH_PART _Pragma("GCC unroll 4") for (int i = 0; i < kParts; ++i)

struct Vec {
  Native p[kParts];
};

SLX_INLINE Vec load(const float* x) {
  Vec r;
  SLX_EACH_PART r.p[i] = *reinterpret_cast<const NativeUnaligned*>(x + i * kNativeLanes);
  return r;
}
SLX_INLINE void store(float* y, Vec v) {
  SLX_EACH_PART *reinterpret_cast<NativeUnaligned*>(y + i * kNativeLanes) = v.p[i];
}
SLX_INLINE Vec broadcast(float x) {
  Vec r;
  SLX_EACH_PART r.p[i] = x - Native{};
  return r;
}
SLX_INLINE Vec zero() { return Vec{}; }

// The first n < 16 lanes from memory, `fill` in the others.
SLX_INLINE Vec load_partial(const float* x, int64_t n, float fill) {
  alignas(64) float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = fill;
  for (int64_t i = 0; i < n; ++i) lanes[i] = x[i];
  return load(lanes);
}
SLX_INLINE void store_partial(float* y, Vec v, int64_t n) {
  alignas(64) float lanes[kLanes];
  store(lanes, v);
  for (int64_t i = 0; i < n; ++i) y[i] = lanes[i];
}
SLX_INLINE Vec load_lanes(const float* x, int64_t n, float fill = 0.0f) {
  return n >= kLanes ? load(x) : load_partial(x, n, fill);
}
SLX_INLINE void store_lanes(float* y, Vec v, int64_t n) {
  if (n >= kLanes) {
    store(y, v);
  } else {
    store_partial(y, v, n);
  }
}

#define SLX_BINARY(op)                         \
  SLX_INLINE Vec operator op(Vec a, Vec b) {   \
    Vec r;                                     \
    SLX_EACH_PART r.p[i] = a.p[i] op b.p[i];   \
    return r;                                  \
  }
SLX_BINARY(+)
SLX_BINARY(-)
SLX_BINARY(*)
SLX_BINARY(/)
#undef SLX_BINARY

// a*b + c, in one rounding if the instruction set has fused multiply-add.
SLX_INLINE Vec fma(Vec a, Vec b, Vec c) {
  Vec r;
  SLX_EACH_PART {
#if defined(__AVX512F__)
    r.p[i] = _mm512_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#elif defined(__AVX2__) && defined(__FMA__)
    r.p[i] = _mm256_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#elif defined(__aarch64__)
    r.p[i] = vfmaq_f32(c.p[i], a.p[i], b.p[i]);
#else
    r.p[i] = a.p[i] * b.p[i] + c.p[i];
#endif
  }
  return r;
}
// The larger lane; b if the comparison is false (so a NaN in b stays, a NaN in a is dropped).
SLX_INLINE Vec max(Vec a, Vec b) {
  Vec r;
  SLX_EACH_PART r.p[i] = a.p[i] > b.p[i] ? a.p[i] : b.p[i];
  return r;
}
SLX_INLINE Vec min(Vec a, Vec b) {
  Vec r;
  SLX_EACH_PART r.p[i] = a.p[i] < b.p[i] ? a.p[i] : b.p[i];
  return r;
}
// value where p is not zero, otherwise zero: for p log p at p = 0, where log p = -inf.
SLX_INLINE Vec zero_where_zero(Vec p, Vec value) {
  Vec r;
  SLX_EACH_PART r.p[i] = p.p[i] != 0.0f ? value.p[i] : Native{};
  return r;
}
SLX_INLINE Vec square_root(Vec a) {
  Vec r;
  SLX_EACH_PART {
#if defined(__AVX512F__)
    r.p[i] = _mm512_sqrt_ps(a.p[i]);
#elif defined(__AVX2__)
    r.p[i] = _mm256_sqrt_ps(a.p[i]);
#elif defined(__SSE2__)
    r.p[i] = _mm_sqrt_ps(a.p[i]);
#else
    for (int lane = 0; lane < kNativeLanes; ++lane) r.p[i][lane] = __builtin_sqrtf(a.p[i][lane]);
#endif
  }
  return r;
}

typedef float Quad __attribute__((vector_size(16)));

struct Quads {
  Quad q[4];
};
SLX_INLINE Quads quads_of(Vec v) {
  alignas(64) Quads r;
  store(reinterpret_cast<float*>(&r), v);
  return r;
}

// The fixed tree over lanes: halves, then quarters, ...
SLX_INLINE float sum_lanes(Vec v) {
  const Quads t = quads_of(v);
  const Quad s = (t.q[0] + t.q[2]) + (t.q[1] + t.q[3]);
  return (s[0] + s[2]) + (s[1] + s[3]);
}
// May ignore a NaN: the sums that follow still propagate it.
SLX_INLINE float max_lanes(Vec v) {
  const auto larger = [](Quad a, Quad b) { return a > b ? a : b; };
  const Quads t = quads_of(v);
  const Quad m = larger(larger(t.q[0], t.q[2]), larger(t.q[1], t.q[3]));
  const float a = m[0] > m[2] ? m[0] : m[2], b = m[1] > m[3] ? m[1] : m[3];
  return a > b ? a : b;
}

// exp(x) = 2^n exp(r), r = x - n ln 2 in two pieces, exp(r) = 1 + r + r^2 q(r), with q fitted to
// 3e-9 relative error on |r| <= ln(2)/2. 2^n is applied as two factors so that denormals are right.
// exp(-inf) = 0, exp(large) = inf, NaN stays.
SLX_INLINE Vec exp(Vec x) {
  const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  Vec clamped = max(broadcast(-105.0f), min(broadcast(89.0f), x));
  const Vec shifted = fma(clamped, broadcast(1.44269504f), magic);
  const Vec n = shifted - magic;
  Vec r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec q = broadcast(0.0013814602280035615f);
  q = fma(q, r, broadcast(0.008368715643882751f));
  q = fma(q, r, broadcast(0.04166838899254799f));
  q = fma(q, r, broadcast(0.1666652113199234f));
  q = fma(q, r, broadcast(0.4999999403953552f));
  const Vec value = fma(q, r * r, r) + broadcast(1.0f);
  Vec first, second;
  SLX_EACH_PART {
    const NativeInt whole = reinterpret_cast<NativeInt>(shifted.p[i]) - 0x4B400000;
    const NativeInt half = whole >> 1;
    first.p[i] = reinterpret_cast<Native>((half + 127) << 23);
    second.p[i] = reinterpret_cast<Native>((whole - half + 127) << 23);
  }
  return value * first * second;
}

SLX_INLINE Vec sigmoid(Vec x) { return broadcast(1.0f) / (broadcast(1.0f) + exp(zero() - x)); }
