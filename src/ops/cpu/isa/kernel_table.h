// The inner loops of the CPU backend, compiled once per instruction set from the same source
// (kernels.inl) and called through this table of plain functions. Within one instruction set every
// element of every result is computed by one fixed order of operations, whatever the sizes of the
// operands; between instruction sets bits may differ (the generic one has no fused multiply-add on
// x86-64). Every sum over a row uses 64 strided partial sums and one fixed tree. Files for
// different instruction sets include this header, so use no standard templates here: the linker
// might keep a copy that this CPU cannot run.
#pragma once
#include <cstdint>

namespace slimexx::ops::cpu {

// Keys in one attention block, and so the width of a score tile.
inline constexpr int64_t kScoreColumns = 64;

// One product C[m,n] (+)= A[m,k] B[k,n] on operands that fit in cache.
struct BlockProduct {
  int64_t m, n, k;
  const float* a;
  int64_t
      a_row_stride;  // 1 (A is stored [k][a_column_stride]) or kScoreColumns (A is a score tile)
  int64_t a_column_stride;
  const float* b;  // [k][ldb], readable up to a multiple of `columns` past n
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool accumulate;
};

struct AdamWConstants {
  float decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root_bias2, eps;
  float gradient_scale;
};

struct KernelTable {
  const char* name;
  int64_t rows, columns;  // the register tile of matmul

  // Packs a[i*row_stride + p*column_stride], m x k, into panels of `rows` rows, each stored
  // [k][rows in panel].
  void (*pack_a)(const float* a, int64_t row_stride, int64_t column_stride, int64_t m, int64_t k,
                 float* packed);
  // Packs b(p, j) = b[j*n_stride + p*k_stride], where one of the strides is 1, into [k][columns],
  // with zeros after the first n <= columns.
  void (*pack_b)(const float* b, int64_t n_stride, int64_t k_stride, int64_t n, int64_t k,
                 float* packed);
  // c[m, n<=columns] (+)= packed_a packed_b (+ bias[columns], added last; may be null).
  void (*multiply_panel)(int64_t m, int64_t n, int64_t k, const float* packed_a,
                         const float* packed_b, float* c, int64_t ldc, bool accumulate,
                         const float* bias);
  void (*multiply_block)(const BlockProduct& product);
  // out[d*ld + j] = rows[j][d] for j < num_rows, d < dim; columns [num_rows, 64) become 0.
  void (*transpose_rows)(const float* const* rows, int64_t num_rows, int64_t dim, float* out);

  float (*max_value)(const float* x, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  float (*sum_exp)(const float* x, int64_t n, float shift);    // sum exp(x - shift)
  float (*sum_p_log_p)(const float* x, int64_t n, float lse);  // sum exp(x-lse) * (x-lse)
  void (*exp_shifted)(float* y, const float* x, int64_t n, float shift);  // y = exp(x - shift)
  float (*divide_and_max)(float* x, int64_t n, float divisor);  // x /= divisor, returns the maximum

  // y = w * ((x - mean) * r) + b, r = 1 / sqrt(mean of (x - mean)^2 + eps)
  void (*layer_norm_row)(float* y, const float* x, const float* w, const float* b, int64_t n,
                         float eps);
  // y = w * (x * r)
  void (*rms_norm_row)(float* y, const float* x, const float* w, int64_t n, float r);
  // dx (+)= r * (dy*w - x*r * mean), mean over the row of dy*w*x*r
  void (*rms_norm_backward_row)(float* dx, const float* dy, const float* x, const float* w,
                                int64_t n, float r, bool accumulate);
  // dw += dy * x * r
  void (*accumulate_scaled_product)(float* dw, const float* dy, const float* x, int64_t n, float r);
  void (*accumulate)(float* y, const float* x, int64_t n);  // y += x

  void (*swiglu_row)(float* h, const float* gate, const float* up, int64_t n);
  // h: null, or written as swiglu_row does.
  void (*swiglu_backward_row)(float* dgate, float* dup, float* h, const float* dh,
                              const float* gate, const float* up, int64_t n);

  // Turns the first `visible` of 64 scores into exp(score*scale - maximum) and the others into 0,
  // and updates the running maximum and sum. Returns the factor that rescales the accumulator.
  float (*softmax_block)(float* scores, int64_t visible, float scale, float* maximum, float* sum);
  void (*scale_row)(float* x, int64_t n, float factor);
  void (*scale_row_into)(float* y, const float* x, int64_t n, float factor);
  // scores -> p = exp(score*scale - lse) for the first `visible` of 64, 0 for the others.
  void (*softmax_from_lse)(float* scores, int64_t visible, float scale, float lse);
  // dp -> p * (dp - delta) * scale over 64 columns, 0 where p is 0.
  void (*softmax_backward)(float* dp, const float* p, float delta, float scale);

  // dlogits = p * (-dlp - dentropy * (log p + entropy)) / temperature; the caller adds the target's
  // own term.
  void (*log_probs_backward_row)(float* dlogits, const float* logits, int64_t n, float lse,
                                 float dlp, float dentropy, float entropy, float temperature);
  void (*adamw)(float* weights, float* exp_avg, float* exp_avg_sq, const float* gradient, int64_t n,
                const AdamWConstants& constants);
  void (*widen_bf16)(float* y, const uint16_t* x, int64_t n);
  void (*round_to_bf16)(uint16_t* y, const float* x, int64_t n);  // to nearest even
  double (*sum_of_squares)(const float* x, int64_t n);
};

extern const KernelTable kGenericKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace slimexx::ops::cpu
