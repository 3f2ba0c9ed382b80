// Functions built on exp: log-softmax over a vocabulary and the softmax of one attention block.

float sum_exp(const float* x, int64_t n, float shift) {
  const Vec s = broadcast(shift);
  return sum_row(n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA {
    return acc + exp(load_lanes(x + h, lanes, -__builtin_inff()) - s);
  });
}

float sum_p_log_p(const float* x, int64_t n, float lse) {
  const Vec s = broadcast(lse);
  return sum_row(n, [&](int64_t h, int64_t lanes, Vec acc) SLX_LAMBDA {
    const Vec log_p = load_lanes(x + h, lanes, -__builtin_inff()) - s;
    const Vec p = exp(log_p);
    return acc + zero_where_zero(p, p * log_p);
  });
}

void exp_shifted(float* y, const float* x, int64_t n, float shift) {
  const Vec s = broadcast(shift);
  each_vec(n, [&](int64_t h, int64_t lanes)
               SLX_LAMBDA { store_lanes(y + h, exp(load_lanes(x + h, lanes) - s), lanes); });
}

void log_probs_backward_row(float* dlogits, const float* logits, int64_t n, float lse, float dlp,
                            float dentropy, float entropy, float temperature) {
  const Vec s = broadcast(lse), minus_dlp = broadcast(-dlp), dh = broadcast(dentropy);
  const Vec h = broadcast(entropy), t = broadcast(temperature);
  each_vec(n, [&](int64_t i, int64_t lanes) SLX_LAMBDA {
    const Vec log_p = load_lanes(logits + i, lanes) - s;
    const Vec p = exp(log_p);
    const Vec d = p * (minus_dlp - dh * (log_p + h)) / t;
    store_lanes(dlogits + i, zero_where_zero(p, d), lanes);
  });
}

// ---- attention: one block of kScoreColumns keys -------------------------------------------------
constexpr int kScoreVecs = kScoreColumns / kLanes;
static_assert(kScoreVecs == kChains);

SLX_INLINE int64_t visible_lanes(int64_t visible, int v) {
  const int64_t lanes = visible - v * kLanes;
  return lanes < 0 ? 0 : (lanes < kLanes ? lanes : kLanes);
}

float softmax_block(float* scores, int64_t visible, float scale, float* maximum, float* sum) {
  Vec s[kScoreVecs], m = broadcast(-__builtin_inff());
#pragma GCC unroll 4
  for (int v = 0; v < kScoreVecs; ++v) {
    s[v] = load_lanes(scores + v * kLanes, visible_lanes(visible, v), -__builtin_inff()) * broadcast(scale);
    m = max(m, s[v]);
  }
  float new_maximum = max_lanes(m);
  if (*maximum > new_maximum) new_maximum = *maximum;
  const Vec shift = broadcast(new_maximum);
#pragma GCC unroll 4
  for (int v = 0; v < kScoreVecs; ++v) {
    s[v] = exp(s[v] - shift);
    store(scores + v * kLanes, s[v]);
  }
  float correction[kLanes];
  store(correction, exp(broadcast(*maximum) - shift));
  *sum = *sum * correction[0] + join(s);
  *maximum = new_maximum;
  return correction[0];
}

void softmax_from_lse(float* scores, int64_t visible, float scale, float lse) {
#pragma GCC unroll 4
  for (int v = 0; v < kScoreVecs; ++v) {
    const Vec s = load_lanes(scores + v * kLanes, visible_lanes(visible, v), -__builtin_inff());
    store(scores + v * kLanes, exp(s * broadcast(scale) - broadcast(lse)));
  }
}

void softmax_backward(float* dp, const float* p, float delta, float scale) {
#pragma GCC unroll 4
  for (int v = 0; v < kScoreVecs; ++v) {
    const Vec pv = load(p + v * kLanes);
    const Vec d = pv * (load(dp + v * kLanes) - broadcast(delta)) * broadcast(scale);
    store(dp + v * kLanes, zero_where_zero(pv, d));
  }
}
