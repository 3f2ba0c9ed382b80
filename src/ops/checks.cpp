#include "ops/checks.h"

#include "slimexx/base/error.h"

namespace slimexx::ops {

bool runs_on_cpu(const Context& ctx) {
  if (ctx.planning()) return false;  // nothing runs
  if (ctx.device().is_cpu()) return true;
#ifdef SLX_WITH_CUDA
  return false;
#else
  throw Error(ErrorCode::kEnvironment, "this build has no CUDA",
              "build with a CUDA toolkit, or use --device cpu", tensor::to_string(ctx.device()));
#endif
}

namespace {

bool has_shape(const Tensor& x, std::initializer_list<int64_t> shape) {
  if (x.num_dims() != static_cast<int>(shape.size())) return false;
  int d = 0;
  for (int64_t extent : shape)
    if (extent != kAny && x.dim(d++) != extent)
      return false;
    else if (extent == kAny)
      ++d;
  return true;
}

std::string shape_text(std::initializer_list<int64_t> shape) {
  std::string text;
  for (int64_t extent : shape)
    text +=
        (text.empty() ? "" : ", ") + (extent == kAny ? std::string("*") : std::to_string(extent));
  return "[" + text + "]";
}

bool has_dense_rows(const Tensor& x) {
  int64_t expected = 1;
  for (int d = x.num_dims() - 1; d >= 1; --d) {
    if (x.dim(d) != 1 && x.stride(d) != expected) return false;
    expected *= x.dim(d);
  }
  return x.dim(0) <= 1 || x.stride(0) >= expected;
}

void check_place(const char* op, const char* name, const Context& ctx, const Tensor& x) {
  SLX_CHECK(x.defined(), "{}: {} is undefined", op, name);
  SLX_CHECK(x.device() == ctx.device(), "{}: {} is on {}, but the stream is on {}", op, name,
            tensor::to_string(x.device()), tensor::to_string(ctx.device()));
  SLX_CHECK(x.raw() != nullptr || x.num_elements() == 0 || ctx.planning(),
            "{}: {} {} has no memory (a planning arena?)", op, name, x.shape_text());
}

}  // namespace

void check_operand(const char* op, const char* name, const Context& ctx, const Tensor& x,
                   tensor::DType dtype, std::initializer_list<int64_t> shape, Strides strides) {
  check_place(op, name, ctx, x);
  SLX_CHECK(x.dtype() == dtype && has_shape(x, shape), "{}: {} is {}, expected {} {}", op, name,
            x.shape_text(), shape_text(shape), tensor::dtype_name(dtype));
  const bool laid_out = strides == Strides::kContiguous ? x.is_contiguous() : has_dense_rows(x);
  SLX_CHECK(laid_out || x.num_elements() == 0, "{}: {} {} has the wrong strides (first {})", op,
            name, x.shape_text(), x.stride(0));
}

void check_dense(const char* op, const char* name, const Context& ctx, const Tensor& x) {
  check_place(op, name, ctx, x);
  SLX_CHECK(x.is_contiguous(), "{}: {} {} is not contiguous", op, name, x.shape_text());
}

}  // namespace slimexx::ops
