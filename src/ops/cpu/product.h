// C[m,n] (+)= A[m,k] B[k,n] (+ bias[n]) on any strides: the driver for the register tiles of
// isa/matmul.inl. Every c is one chain of fused multiply-adds over ascending k that starts from 0
// (or from the old c), with the bias last. Its bits do not depend on m, n, strides, tiles or
// threads.
#pragma once
#include <cstdint>

namespace slimexx::ops::cpu {

struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_row_stride, a_column_stride;  // a(i, p)
  const float* b;
  int64_t b_n_stride, b_k_stride;  // b(p, j); one of the two is 1
  float* c;
  int64_t ldc;
  bool accumulate = false;
  const float* bias = nullptr;
};

void multiply(const Product& product);

// Rows of a matrix, `stride` floats apart.
struct Rows {
  float* data;
  int64_t stride;
};
// The product of a linear layer y[m,n] = x[m,k] w[n,k]^T; w is contiguous.
Product forward_product(int64_t m, int64_t n, int64_t k, Rows y, Rows x, const float* w);
// dx[m,k] = dy[m,n] w[n,k]
Product input_gradient(int64_t m, int64_t n, int64_t k, Rows dx, Rows dy, const float* w);
// dw[n,k] (+)= dy[m,n]^T x[m,k]
Product weight_gradient(int64_t m, int64_t n, int64_t k, float* dw, Rows dy, Rows x,
                        bool accumulate);

}  // namespace slimexx::ops::cpu
