// Gradient products through cuBLASLt: one handle per device, the choice of algorithm kept per
// shape.
//
// cuBLASLt's matrices are column-major, so a row-major matrix is its transpose there, and d = a' b
// is computed as d^T = b^T a'^T, with b as its first operand.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "kernels/gemm_backward/choose.h"
#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {
namespace {

// Split-K may reduce partial sums only through the workspace, in fp32 and in a fixed order, never
// in place in d.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr size_t kKeptChoices = 4096;  // token counts differ from step to step
constexpr int kAnswers = 16;           // requested; cuBLASLt 13.0 returns 8

struct Choice {
  bool served = false;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
};

// Sizes, strides, transposition, type of d, alignments, workspace.
using ShapeKey = std::array<int64_t, 9>;

struct DeviceLibrary {
  std::mutex mutex;  // guards the choices; the handle may be used by several threads
  cublasLtHandle_t handle = nullptr;
  cublasStatus_t creation = CUBLAS_STATUS_NOT_INITIALIZED;
  std::map<ShapeKey, Choice> choices;
};

const char* name_status(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return nullptr;
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "gemm_backward: cuBLASLt failed: CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "gemm_backward: cuBLASLt failed with a status unknown to this program";
  }
}

// The cuBLASLt handle of the device, created at first use and never destroyed: its kernels may
// still be queued when static objects are destroyed.
DeviceLibrary& library_of(int device) {
  static std::mutex mutex;
  static auto* libraries = new std::map<int, std::unique_ptr<DeviceLibrary>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<DeviceLibrary>& library = (*libraries)[device];
  if (library == nullptr) {
    library = std::make_unique<DeviceLibrary>();
    library->creation = cublasLtCreate(&library->handle);
  }
  return *library;
}

// The power of two, at most 16, that divides the address.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 16;
  return static_cast<uint32_t>(address & (~address + 1));
}

struct Description {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

cublasStatus_t describe(const GradProduct& p, Description& out) {
  const auto layout = [](cublasLtMatrixLayoutOpaque_t& l, cudaDataType type, int64_t rows,
                         int64_t columns, int64_t stride) {
    return cublasLtMatrixLayoutInit(&l, type, static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), stride);
  };
  const cublasOperation_t transpose = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::array<cublasStatus_t, 5> steps = {
      cublasLtMatmulDescInit(&out.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      cublasLtMatmulDescSetAttribute(&out.product, CUBLASLT_MATMUL_DESC_TRANSB, &transpose,
                                     sizeof(transpose)),
      layout(out.a, CUDA_R_16BF, p.b.rows, p.b.columns, p.b.stride),
      layout(out.b, CUDA_R_16BF, p.a.rows, p.a.columns, p.a.stride),
      layout(out.d, p.d_is_f32 ? CUDA_R_32F : CUDA_R_16BF, p.rows(), p.columns(), p.d_stride)};
  for (const cublasStatus_t status : steps) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t describe(const GradProduct& p, size_t workspace_bytes,
                        cublasLtMatmulPreferenceOpaque_t& out) {
  const auto set = [&out](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(&out, attribute, &value, sizeof(value));
  };
  const std::array<cublasStatus_t, 7> steps = {
      cublasLtMatmulPreferenceInit(&out),
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes),
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions),
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data)),
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data)),
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d)),
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d))};
  for (const cublasStatus_t status : steps) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

using Answer = cublasLtMatmulHeuristicResult_t;

struct Question {
  cublasLtHandle_t handle;
  cublasLtMatmulPreferenceOpaque_t preference;
  size_t workspace_bytes;
};

struct Answers {
  std::array<Answer, kAnswers> all;
  int count = 0;
  std::span<const Answer> list() const { return {all.data(), static_cast<size_t>(count)}; }
};

// If cuBLASLt has no suggestion or does not support the shape, returns success with no answers.
cublasStatus_t ask(Question& question, Description& d, Answers& out) {
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(question.handle, &d.product, &d.a, &d.b, &d.d, &d.d,
                                     &question.preference, kAnswers, out.all.data(), &out.count);
  if (status == CUBLAS_STATUS_SUCCESS) return status;
  out.count = 0;
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : status;
}

// If the number of rows is not a multiple of 128, the heuristic suggests only tiles of odd sizes.
// Use the algorithm that is preferred for the next multiple of 128 instead.
bool find_rounded(Question& question, const GradProduct& p, Description& description, Answer& out) {
  constexpr int64_t kRound = 128, kLeastRows = 2048;
  if (p.transpose_a || p.rows() < kLeastRows || p.rows() % kRound == 0) return false;
  GradProduct rounded = p;
  rounded.a.rows = (p.rows() + kRound - 1) / kRound * kRound;
  Description wider;
  Answers answers;
  if (describe(rounded, wider) != CUBLAS_STATUS_SUCCESS) return false;
  if (ask(question, wider, answers) != CUBLAS_STATUS_SUCCESS) return false;
  const Answer* preferred = find_preferred(rounded, answers.list());
  if (preferred == nullptr) return false;
  Description& d = description;
  Answer checked{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(question.handle, &d.product, &d.a, &d.b,
                                                        &d.d, &d.d, &preferred->algo, &checked);
  if (status != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > question.workspace_bytes) {
    return false;
  }
  out = *preferred;
  out.workspaceSize = checked.workspaceSize;
  return true;
}

cublasStatus_t choose(cublasLtHandle_t handle, const GradProduct& p, Description& description,
                      size_t workspace_bytes, Choice& out) {
  out = {};
  Question question{handle, {}, workspace_bytes};
  cublasStatus_t status = describe(p, workspace_bytes, question.preference);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Answers answers;
  status = ask(question, description, answers);
  if (status != CUBLAS_STATUS_SUCCESS || answers.count == 0) return status;
  Answer rounded;
  const Answer* chosen = find_preferred(p, answers.list());
  if (chosen == nullptr && find_rounded(question, p, description, rounded)) chosen = &rounded;
  if (chosen == nullptr) chosen = answers.all.data();
  out.served = chosen->state == CUBLAS_STATUS_SUCCESS;
  out.algorithm = chosen->algo;
  out.workspace_bytes = chosen->workspaceSize;
  return CUBLAS_STATUS_SUCCESS;
}

ShapeKey key_of(const GradProduct& p, size_t workspace_bytes) {
  const int64_t kind = (p.transpose_a ? 2 : 0) + (p.d_is_f32 ? 1 : 0);
  const int64_t alignments =
      alignment_of(p.a.data) + 32 * (alignment_of(p.b.data) + 32 * alignment_of(p.d));
  return {p.rows(),   p.columns(), p.depth(),
          p.a.stride, p.b.stride,  p.d_stride,
          kind,       alignments,  static_cast<int64_t>(workspace_bytes)};
}

cublasStatus_t find_choice(DeviceLibrary& library, const GradProduct& p, Description& description,
                           size_t workspace_bytes, Choice& out) {
  const ShapeKey key = key_of(p, workspace_bytes);
  const std::lock_guard lock(library.mutex);
  if (const auto kept = library.choices.find(key); kept != library.choices.end()) {
    out = kept->second;
    return CUBLAS_STATUS_SUCCESS;
  }
  const cublasStatus_t status = choose(library.handle, p, description, workspace_bytes, out);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (library.choices.size() == kKeptChoices) library.choices.clear();
  library.choices.emplace(key, out);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

GradOutcome multiply_by_cublas(const GradProduct& p, const GemmWorkspace& workspace,
                               cudaStream_t stream) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return {cudaGetErrorString(error), false};
  DeviceLibrary& library = library_of(device);
  if (library.creation != CUBLAS_STATUS_SUCCESS) return {name_status(library.creation), false};
  Description description;
  Choice choice;
  cublasStatus_t status = describe(p, description);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = find_choice(library, p, description, workspace.bytes, choice);
  }
  if (status != CUBLAS_STATUS_SUCCESS) return {name_status(status), false};
  if (!choice.served) return {nullptr, true};
  const float alpha = 1.0f;
  const float beta = p.accumulate ? 1.0f : 0.0f;
  status = cublasLtMatmul(library.handle, &description.product, &alpha, p.b.data, &description.a,
                          p.a.data, &description.b, &beta, p.d, &description.d, p.d, &description.d,
                          &choice.algorithm, workspace.data, choice.workspace_bytes, stream);
  return {name_status(status), false};
}

}  // namespace slimexx::kernels
