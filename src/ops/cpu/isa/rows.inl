// Work along one row. A sum over a row has 64 strided partial sums (four Vecs), added as
// (0+1)+(2+3) and then by the tree of sum_lanes; missing elements count as zero.
constexpr int kChains = 4;

SLX_INLINE float join(const Vec* acc) { return sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3])); }

// term(offset, lanes) returns a Vec that is zero beyond `lanes`.
template <class Term>
SLX_INLINE float sum_row(int64_t n, Term&& term) {
  Vec acc[kChains] = {zero(), zero(), zero(), zero()};
  int64_t h = 0;
  for (; h + kChains * kLanes <= n; h += kChains * kLanes)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) acc[c] = term(h + c * kLanes, kLanes, acc[c]);
#pragma GCC unroll 4
  for (int c = 0; c < kChains; ++c)
    if (h + c * kLanes < n) acc[c] = term(h + c * kLanes, n - h - c * kLanes, acc[c]);
  return join(acc);
}

template <class Body>
SLX_INLINE void each_vec(int64_t n, Body&& body) {
  int64_t h = 0;
  for (; h + kLanes <= n; h += kLanes) body(h, kLanes);
  if (h < n) body(h, n - h);
}

float dot(const float* x, const float* y, int64_t n) {
  return sum_row(n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA {
    return fma(load_lanes(x + h, lanes), load_lanes(y + h, lanes), acc);
  });
}

float max_value(const float* x, int64_t n) {
  Vec m = broadcast(-__builtin_inff());
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    m = max(m, load_lanes(x + h, lanes, -__builtin_inff()));
  });
  return max_lanes(m);
}

float divide_and_max(float* x, int64_t n, float divisor) {
  const Vec d = broadcast(divisor);
  Vec m = broadcast(-__builtin_inff());
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    Vec v = load_lanes(x + h, lanes, -__builtin_inff());
    if (divisor != 1.0f) {
      v = v / d;
      store_lanes(x + h, v, lanes);
    }
    m = max(m, v);
  });
  return max_lanes(m);
}

void layer_norm_row(float* y, const float* x, const float* w, const float* b, int64_t n, float eps) {
  const float sum = sum_row(
      n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA { return acc + load_lanes(x + h, lanes); });
  const float mean = sum / static_cast<float>(n);
  const Vec shift = broadcast(mean);
  const float squares = sum_row(n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA {
    const Vec d = load_lanes(x + h, lanes, mean) - shift;
    return fma(d, d, acc);
  });
  const Vec r = broadcast(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps));
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    const Vec d = load_lanes(x + h, lanes) - shift;
    store_lanes(y + h, fma(load_lanes(w + h, lanes), d * r, load_lanes(b + h, lanes)), lanes);
  });
}

void rms_norm_row(float* y, const float* x, const float* w, int64_t n, float r) {
  const Vec rv = broadcast(r);
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    store_lanes(y + h, load_lanes(w + h, lanes) * (load_lanes(x + h, lanes) * rv), lanes);
  });
}

void rms_norm_backward_row(float* dx, const float* dy, const float* x, const float* w, int64_t n, float r,
                           bool accumulate) {
  const Vec rv = broadcast(r);
  const float sum = sum_row(n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA {
    return fma(load_lanes(dy + h, lanes) * load_lanes(w + h, lanes), load_lanes(x + h, lanes) * rv, acc);
  });
  const Vec mean = broadcast(sum / static_cast<float>(n));
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    const Vec g = load_lanes(dy + h, lanes) * load_lanes(w + h, lanes);
    Vec d = rv * (g - load_lanes(x + h, lanes) * rv * mean);
    if (accumulate) d = load_lanes(dx + h, lanes) + d;
    store_lanes(dx + h, d, lanes);
  });
}

void accumulate_scaled_product(float* dw, const float* dy, const float* x, int64_t n, float r) {
  const Vec rv = broadcast(r);
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    store_lanes(dw + h, fma(load_lanes(dy + h, lanes), load_lanes(x + h, lanes) * rv, load_lanes(dw + h, lanes)),
                lanes);
  });
}

void accumulate(float* y, const float* x, int64_t n) {
  each_vec(n, [&](int64_t h, int64_t lanes) SLX_LAMBDA {
    store_lanes(y + h, load_lanes(y + h, lanes) + load_lanes(x + h, lanes), lanes);
  });
}

void scale_row_into(float* y, const float* x, int64_t n, float factor) {
  const Vec f = broadcast(factor);
  each_vec(n, [&](int64_t h, int64_t lanes)
               SLX_LAMBDA { store_lanes(y + h, load_lanes(x + h, lanes) * f, lanes); });
}
void scale_row(float* x, int64_t n, float factor) { scale_row_into(x, x, n, factor); }

void swiglu_row(float* h, const float* gate, const float* up, int64_t n) {
  each_vec(n, [&](int64_t i, int64_t lanes) SLX_LAMBDA {
    const Vec g = load_lanes(gate + i, lanes);
    store_lanes(h + i, g * sigmoid(g) * load_lanes(up + i, lanes), lanes);
  });
}

void swiglu_backward_row(float* dgate, float* dup, float* h, const float* dh, const float* gate,
                         const float* up, int64_t n) {
  const Vec one = broadcast(1.0f);
  each_vec(n, [&](int64_t i, int64_t lanes) SLX_LAMBDA {
    const Vec g = load_lanes(gate + i, lanes), u = load_lanes(up + i, lanes), d = load_lanes(dh + i, lanes);
    const Vec s = sigmoid(g);
    store_lanes(dgate + i, d * u * s * (one + g * (one - s)), lanes);
    store_lanes(dup + i, d * (g * s), lanes);
    if (h != nullptr) store_lanes(h + i, g * s * u, lanes);
  });
}

void adamw(float* weights, float* exp_avg, float* exp_avg_sq, const float* gradient, int64_t n,
           const AdamWConstants& k) {
  const Vec b1 = broadcast(k.beta1), c1 = broadcast(k.one_minus_beta1), b2 = broadcast(k.beta2);
  const Vec c2 = broadcast(k.one_minus_beta2), decay = broadcast(k.decay), step = broadcast(k.step_size);
  const Vec root = broadcast(k.inverse_root_bias2), eps = broadcast(k.eps), scale = broadcast(k.gradient_scale);
  each_vec(n, [&](int64_t i, int64_t lanes) SLX_LAMBDA {
    const Vec g = load_lanes(gradient + i, lanes) * scale;
    const Vec m = fma(b1, load_lanes(exp_avg + i, lanes), c1 * g);
    const Vec v = fma(b2, load_lanes(exp_avg_sq + i, lanes), c2 * g * g);
    const Vec denominator = square_root(v) * root + eps;
    store_lanes(exp_avg + i, m, lanes);
    store_lanes(exp_avg_sq + i, v, lanes);
    store_lanes(weights + i, load_lanes(weights + i, lanes) * decay - step * m / denominator, lanes);
  });
}

// Without branches, so that compilers vectorise them.
void widen_bf16(float* y, const uint16_t* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = __builtin_bit_cast(float, uint32_t{x[i]} << 16);
}

void round_to_bf16(uint16_t* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(uint32_t, x[i]);
    const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const uint32_t quiet_nan = bits >> 16 | 0x40u;
    y[i] = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
  }
}

double sum_of_squares(const float* x, int64_t n) {
  double acc[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l)
      acc[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  for (int l = 0; i + l < n; ++l) acc[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) acc[l] += acc[l + width];
  return acc[0];
}
