// Inputs for the checks of head norms and RoPE, on the host and on the device.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/kernels/rows.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

struct HeadCase {
  int64_t tokens, query_heads, kv_heads, head_dim, rotary_dim;
  bool interleaved, q_norm, k_norm;
};

// Inputs for one case. Positions repeat and are not in ascending order.
struct HeadProblem {
  explicit HeadProblem(const HeadCase& c_)
      : c(c_),
        row((c.query_heads + 2 * c.kv_heads) * c.head_dim),
        in(random_bf16(c.tokens * row, 2.0f)),
        gradient(random_bf16(c.tokens * row, 1.0f)),
        q_norm(random_bf16(c.head_dim, 0.3f, 1.0f)),
        k_norm(random_bf16(c.head_dim, 0.3f, 1.0f)),
        cos(static_cast<size_t>(kPositions * c.rotary_dim / 2)),
        sin(cos.size()) {
    const std::vector<float> angles = random_floats(static_cast<int64_t>(cos.size()), 3.0f);
    for (size_t i = 0; i < cos.size(); ++i)
      cos[i] = std::cos(angles[i]), sin[i] = std::sin(angles[i]);
    for (int64_t t = 0; t < c.tokens; ++t)
      positions.push_back(static_cast<int32_t>((t * 7 + 3) % kPositions));
    // Every fourth token has no slot; the others are spread over the pages.
    for (int64_t t = 0; t < c.tokens; ++t)
      slots.push_back(t % 4 == 3 ? -1 : static_cast<int32_t>(c.tokens - 1 - t));
  }
  static constexpr int64_t kPositions = 11;
  HeadCase c;
  int64_t row;
  Bits in, gradient, q_norm, k_norm;
  std::vector<float> cos, sin;
  std::vector<int32_t> positions, slots;
};

inline HeadProblem take_token(const HeadProblem& p, int64_t token) {
  HeadProblem one = p;
  one.c.tokens = 1;
  one.in = take_rows(p.in, token, 1, p.row);
  one.gradient = take_rows(p.gradient, token, 1, p.row);
  one.positions = {p.positions[static_cast<size_t>(token)]};
  one.slots = {0};
  return one;
}

// Device copies that every call needs.
struct HeadDevice {
  HeadDevice(const HeadProblem& p, int64_t shift)
      : q_norm(p.q_norm, shift),
        k_norm(p.k_norm, shift),
        cos(p.cos),
        sin(p.sin),
        positions(p.positions) {
    rotary = {cos.data(), sin.data(), positions.data(), p.c.rotary_dim, p.c.interleaved};
    shape = {p.c.tokens, p.c.query_heads, p.c.kv_heads, p.c.head_dim};
    q = p.c.q_norm ? q_norm.data() : nullptr;
    k = p.c.k_norm ? k_norm.data() : nullptr;
  }
  Bf16Array q_norm, k_norm;
  FloatArray cos, sin;
  Array<int32_t> positions;
  RotaryTables rotary;
  QkvShape shape;
  const uint16_t *q, *k;
};

}  // namespace slimexx::kernels::testing
