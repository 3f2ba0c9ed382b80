// Gradients of the matrix product: values against sums in double, with and without accumulation,
// with gaps between rows, and with sizes and addresses that tensor cores do not support; memory
// outside the result untouched; the same bits on every call and from several threads at once.
//
//   gemm_backward_check [--small]      --small: shapes that are quick under compute-sanitizer
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "slimexx/kernels/gemm_backward.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_backward_case.cuh"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

int comparisons = 0;
int failures = 0;

// A copy of the result's earlier contents, into which one gradient is computed.
struct Result {
  Result(const BackwardOperands& from, const BackwardKind& kind)
      : bytes(kind.weight ? from.start_dw.count() * 4 : from.start_dx.count() * 2), data(bytes) {
    const void* start = kind.weight ? static_cast<const void*>(from.start_dw.data())
                                    : static_cast<const void*>(from.start_dx.data());
    SLX_CUDA(cudaMemcpy(data.data(), start, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice));
  }
  int64_t bytes;
  DeviceArray<uint8_t> data;
};

const char* launch(const BackwardOperands& o, const BackwardKind& kind, const Result& result,
                   const GemmWorkspace& workspace, cudaStream_t stream) {
  const BackwardShape& s = o.shape;
  const __nv_bfloat16* dy = o.dy.data() + s.offset;
  if (kind.weight) {
    GemmWeightGradArgs args{dy, o.x.data() + s.offset, result.data.data(), s.m, s.n, s.k};
    args.dy_stride = s.gap == 0 ? 0 : s.n + s.gap;
    args.x_stride = s.gap == 0 ? 0 : s.k + s.gap;
    args.accumulate = kind.accumulate;
    return launch_gemm_weight_grad(args, workspace, stream);
  }
  auto* dx = reinterpret_cast<__nv_bfloat16*>(result.data.data()) + s.offset;
  GemmInputGradArgs args{dy, o.w.data() + s.offset, dx, s.m, s.n, s.k};
  args.dy_stride = s.gap == 0 ? 0 : s.n + s.gap;
  args.dx_stride = s.gap == 0 ? 0 : s.k + s.gap;
  args.accumulate = kind.accumulate;
  return launch_gemm_input_grad(args, workspace, stream);
}

struct Sums {
  const __nv_bfloat16 *a, *b;
  int64_t a_row, a_term, b_column, b_term;  // steps in elements
  int64_t rows, columns, terms;
};

// Half the distance between neighbouring numbers with `bits` significant bits.
__device__ inline double half_step(double value, int bits) {
  return value == 0 ? 0 : scalbn(1.0, ilogb(value) - bits);
}

// Compares each element with the sum in double. The error of fp32 sums grows with the sum of the
// terms' magnitudes: the allowed 2^-18 of it is 30 times less than one missing term of 8192.
// Rounding of the result is allowed too and, if it is added to bf16, rounding of the product.
template <class T>
__global__ void compare_sums(const Sums s, const T* result, int64_t stride, const T* start,
                             bool accumulate, Difference* out, double* values) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= s.rows * s.columns) return;
  const int64_t row = i / s.columns, column = i % s.columns;
  double sum = 0, magnitude = 0;
  for (int64_t l = 0; l < s.terms; ++l) {
    const double term =
        static_cast<double>(__bfloat162float(s.a[row * s.a_row + l * s.a_term])) *
        static_cast<double>(__bfloat162float(s.b[column * s.b_column + l * s.b_term]));
    sum += term;
    magnitude += fabs(term);
  }
  const int64_t at = row * stride + column;
  const double before = accumulate ? static_cast<double>(static_cast<float>(start[at])) : 0.0;
  const double expected = sum + before;
  const double found = static_cast<double>(static_cast<float>(result[at]));
  const double lost = 0x1p-18 * magnitude + 0x1p-23 * fabs(before) + 1e-30;
  const int bits = sizeof(T) == 2 ? 8 : 24;
  double bound = lost + half_step(fabs(expected) + lost, bits);
  if (accumulate && sizeof(T) == 2) bound += half_step(fabs(sum) + lost, bits);
  if (fabs(found - expected) <= bound) return;
  if (atomicAdd(&out->count, 1ull) == 0) {
    out->first = static_cast<unsigned long long>(i);
    values[0] = found;
    values[1] = expected;
    values[2] = bound;
  }
}

// Counts bytes outside the result that changed.
__global__ void compare_outside(const uint8_t* result, const uint8_t* start, int64_t bytes,
                                int64_t element, int64_t offset, int64_t rows, int64_t columns,
                                int64_t stride, Difference* out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= bytes || result[i] == start[i]) return;
  const int64_t at = i / element - offset;
  if (at >= 0 && at / stride < rows && at % stride < columns) return;
  atomicAdd(&out->count, 1ull);
  atomicMin(&out->first, static_cast<unsigned long long>(i));
}

unsigned blocks_for(int64_t count) { return static_cast<unsigned>((count + 255) / 256); }

void print_case(const BackwardShape& s, const BackwardKind& kind) {
  std::printf("FAIL %s m %ld n %ld k %ld gap %ld offset %ld seed %lu: ", kind.name(), long(s.m),
              long(s.n), long(s.k), long(s.gap), long(s.offset),
              static_cast<unsigned long>(kBackwardSeed));
}

void compare_values(const BackwardOperands& o, const BackwardKind& kind, const Result& result) {
  const BackwardShape& s = o.shape;
  DeviceArray<Difference> found(2);
  const Difference none[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(found.data(), none, sizeof(none), cudaMemcpyHostToDevice));
  DeviceArray<double> values(3);
  const __nv_bfloat16* dy = o.dy.data() + s.offset;
  const uint8_t* bytes = result.data.data();
  if (kind.weight) {
    const Sums sums{dy, o.x.data() + s.offset, 1, s.n + s.gap, 1, s.k + s.gap, s.n, s.k, s.m};
    compare_sums<<<blocks_for(s.n * s.k), 256>>>(sums, reinterpret_cast<const float*>(bytes), s.k,
                                                 o.start_dw.data(), kind.accumulate, found.data(),
                                                 values.data());
    compare_outside<<<blocks_for(result.bytes), 256>>>(
        bytes, reinterpret_cast<const uint8_t*>(o.start_dw.data()), result.bytes, 4, 0, s.n, s.k,
        s.k, found.data() + 1);
  } else {
    const Sums sums{dy, o.w.data() + s.offset, s.n + s.gap, 1, 1, s.k, s.m, s.k, s.n};
    compare_sums<<<blocks_for(s.m * s.k), 256>>>(
        sums, reinterpret_cast<const __nv_bfloat16*>(bytes) + s.offset, s.k + s.gap,
        o.start_dx.data() + s.offset, kind.accumulate, found.data(), values.data());
    compare_outside<<<blocks_for(result.bytes), 256>>>(
        bytes, reinterpret_cast<const uint8_t*>(o.start_dx.data()), result.bytes, 2, s.offset, s.m,
        s.k, s.k + s.gap, found.data() + 1);
  }
  SLX_CUDA(cudaDeviceSynchronize());
  ++comparisons;
  const Difference value = found.get(0), outside = found.get(1);
  if (value.count + outside.count == 0) return;
  ++failures;
  print_case(s, kind);
  const int64_t first = static_cast<int64_t>(value.first);
  if (value.count > 0) {
    std::printf("%llu values, one at row %ld column %ld: %.9g, expected %.9g within %.3g; ",
                value.count, long(first / s.k), long(first % s.k), values.get(0), values.get(1),
                values.get(2));
  }
  if (outside.count > 0)
    std::printf("%llu bytes outside, first %llu", outside.count, outside.first);
  std::printf("\n");
}

bool run_once(const BackwardOperands& o, const BackwardKind& kind, const Result& result,
              const GemmWorkspace& workspace, cudaStream_t stream) {
  const char* fault = launch(o, kind, result, workspace, stream);
  if (fault == nullptr) return true;
  ++failures;
  print_case(o.shape, kind);
  std::printf("%s\n", fault);
  return false;
}

void expect_same_bits(const BackwardOperands& o, const BackwardKind& kind, const Result& a,
                      const Result& b, const char* what) {
  std::vector<uint8_t> left(static_cast<size_t>(a.bytes)), right(left.size());
  SLX_CUDA(cudaMemcpy(left.data(), a.data.data(), left.size(), cudaMemcpyDeviceToHost));
  SLX_CUDA(cudaMemcpy(right.data(), b.data.data(), right.size(), cudaMemcpyDeviceToHost));
  ++comparisons;
  if (left == right) return;
  ++failures;
  const auto at = std::mismatch(left.begin(), left.end(), right.begin());
  print_case(o.shape, kind);
  std::printf("%s differs at byte %ld: %02x, then %02x\n", what, long(at.first - left.begin()),
              unsigned(*at.first), unsigned(*at.second));
}

// Checks values once, then the bits of `repeats` more calls.
void check_shape(const BackwardShape& shape, int repeats) {
  const BackwardOperands o(shape);
  const GemmWorkspace workspace{o.workspace.data(), kGemmBackwardWorkspaceBytes};
  for (const BackwardKind kind :
       {BackwardKind{false, false}, {false, true}, {true, false}, {true, true}}) {
    const Result first(o, kind);
    if (!run_once(o, kind, first, workspace, nullptr)) continue;
    compare_values(o, kind, first);
    for (int i = 0; i < repeats; ++i) {
      const Result again(o, kind);
      if (!run_once(o, kind, again, workspace, nullptr)) break;
      SLX_CUDA(cudaDeviceSynchronize());
      expect_same_bits(o, kind, first, again, "a repeated call");
    }
    const Result bare(o, kind);
    if (run_once(o, kind, bare, {}, nullptr)) compare_values(o, kind, bare);
  }
}

// Several threads use new shapes at the same time, each with its own stream and workspace.
void check_threads() {
  constexpr int kThreads = 8;
  const BackwardOperands o({1000, 712, 520});
  const BackwardKind kind{true, true};
  const Result alone(o, kind);
  std::vector<std::unique_ptr<Result>> results;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> workspaces;
  std::vector<cudaStream_t> streams(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    results.push_back(std::make_unique<Result>(o, kind));
    workspaces.push_back(
        std::make_unique<DeviceArray<uint8_t>>(int64_t{kGemmBackwardWorkspaceBytes}));
    SLX_CUDA(cudaStreamCreate(&streams[size_t(i)]));
  }
  SLX_CUDA(cudaDeviceSynchronize());
  std::vector<const char*> faults(kThreads, nullptr);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const GemmWorkspace workspace{workspaces[i]->data(), kGemmBackwardWorkspaceBytes};
      faults[i] = launch(o, kind, *results[i], workspace, streams[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  SLX_CUDA(cudaDeviceSynchronize());
  const GemmWorkspace workspace{o.workspace.data(), kGemmBackwardWorkspaceBytes};
  if (!run_once(o, kind, alone, workspace, nullptr)) return;
  SLX_CUDA(cudaDeviceSynchronize());
  for (size_t i = 0; i < kThreads; ++i) {
    if (faults[i] != nullptr) {
      ++failures;
      std::printf("FAIL thread %zu: %s\n", i, faults[i]);
    }
    expect_same_bits(o, kind, alone, *results[i], "a call from another thread");
    cudaStreamDestroy(streams[i]);
  }
}

void expect_fault(const char* what, const char* fault) {
  ++comparisons;
  if (fault != nullptr) return;
  ++failures;
  std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const DeviceArray<float> memory(4096);
  float* p = memory.data();
  expect_fault("n of 0", launch_gemm_input_grad({p, p, p, 8, 0, 8}, {}, nullptr));
  expect_fault("negative m", launch_gemm_weight_grad({p, p, p, -1, 8, 8}, {}, nullptr));
  expect_fault("null dx", launch_gemm_input_grad({p, p, nullptr, 8, 8, 8}, {}, nullptr));
  expect_fault("dy_stride below n", launch_gemm_input_grad({p, p, p, 8, 8, 8, 7}, {}, nullptr));
  expect_fault("dx_stride below k", launch_gemm_input_grad({p, p, p, 8, 8, 8, 8, 7}, {}, nullptr));
  expect_fault("x_stride below k", launch_gemm_weight_grad({p, p, p, 8, 8, 8, 8, 7}, {}, nullptr));
  expect_fault("workspace at 4 bytes",
               launch_gemm_weight_grad({p, p, p, 8, 8, 8}, {p + 1, 1024}, nullptr));
  ++comparisons;
  DeviceArray<float> dw(64);
  dw.set_bytes(0x41);
  GemmWeightGradArgs empty{p, p, dw.data(), 0, 8, 8};
  const char* kept = launch_gemm_weight_grad(empty, {}, nullptr);
  const float before = dw.get(63);
  empty.accumulate = false;
  const char* cleared = launch_gemm_weight_grad(empty, {}, nullptr);
  if (kept != nullptr || cleared != nullptr || before == 0.0f || dw.get(63) != 0.0f) {
    ++failures;
    std::printf("FAIL: dw of no rows: %g, then %g\n", double(before), double(dw.get(63)));
  }
}

int run(bool small) {
  check_refusals();
  check_threads();
  const std::vector<BackwardShape> odd = {
      {33, 72, 40},       {33, 72, 40, 8},       {1, 8, 8},         {7, 13, 21}, {100, 77, 129, 3},
      {64, 64, 64, 0, 1}, {130, 264, 136, 8, 8}, {65, 66, 70, 2, 2}};
  for (const BackwardShape& shape : odd) check_shape(shape, 2);
  if (!small) {
    for (const BackwardShape& shape : {BackwardShape{512, 1024, 768},
                                       {4096, 640, 1536},
                                       {8192, 256, 512},
                                       {300, 4608, 1024, 64},
                                       {2048, 1000, 1001},
                                       {1, 4096, 1024}}) {
      check_shape(shape, 10);
    }
    // Large enough for the algorithms of kernels/gemm_backward/choose.cpp.
    check_shape({4096, 2560, 4096, 8}, 3);
    check_shape({4001, 2560, 4096}, 3);
    // The row stride of dy is that of f32 logits whose memory the bf16 gradient reuses: over 2^32
    // bytes.
    check_shape({8191, 151936, 64, 151936}, 0);
  }
  std::printf("gemm_backward_check: %d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv) != CheckSize::kAll);
}
