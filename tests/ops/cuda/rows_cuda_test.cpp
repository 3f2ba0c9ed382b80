// Compares norms, element-wise ops, gathers and the embedding on the device with the CPU's, from
// the same bf16 values. Values that are rounded once are within one bf16 step of the CPU's f32
// values.
#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/op_cases.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/norm.h"

namespace slimexx::ops::testing {
namespace {

class NormCuda : public DeviceTest {};
class ElementwiseCuda : public DeviceTest {};

constexpr float kEps = 1e-5f;
// Tolerance of f32 sums over rows, in another order than the CPU's.
constexpr double kSumBound = 1e-5;
// Tolerance of gradients before rounding, whose terms cancel.
constexpr double kCancelled = 1e-5;

std::vector<cases::RowsCase> norm_rows() {
  std::vector<cases::RowsCase> all;
  for (const auto& c : cases::norm_values())
    if (c.heads == 0) all.push_back({c.tokens, c.size});
  for (const auto& c : cases::norm_gradients())
    if (c.heads == 0) all.push_back({c.tokens, c.size});
  all.insert(all.end(), {{70, 1024}, {9, 4096}, {300, 512}});
  return all;
}

std::string name_of(const cases::RowsCase& c) {
  return std::to_string(c.rows) + "x" + std::to_string(c.columns) + ", seed 1";
}

TEST_F(NormCuda, ForwardAgreesWithTheCpu) {
  for (const auto& c : norm_rows()) {
    const Array x = random_bf16({c.rows, c.columns}, 1), w = random_bf16({c.columns}, 2, 0.3, 1.0);
    const Array expected({c.rows, c.columns});
    rms_norm_forward(cpu_context(), expected, x, w, kEps);
    const OnDevice dx(x), dw(w), y(Array({c.rows, c.columns}));
    run_op([&](const Context& s) { rms_norm_forward(s, y, dx, dw, kEps); });
    EXPECT_TRUE(within_ulp(y.back(), expected)) << name_of(c);
    run_op([&](const Context& s) { rms_norm_forward(s, dx, dx, dw, kEps); });
    EXPECT_TRUE(same_bits(dx.back(), y.back())) << "in place, " << name_of(c);
  }
}

TEST_F(NormCuda, RowAloneAndStrides) {
  const OnDevice w(random_bf16({304}, 2)), wide(random_bf16({9, 720}, 1));
  for (const int64_t first : {int64_t{104}, int64_t{101}}) {
    const tensor::Tensor x = wide.view().columns(first, first + 304);
    const OnDevice y(Array({9, 304}));
    run_op([&](const Context& s) { rms_norm_forward(s, y, x, w, kEps); });
    const Array batch = y.back();
    for (int64_t t = 0; t < 9; ++t) {
      const OnDevice alone(Array({1, 304}));
      run_op([&](const Context& s) { rms_norm_forward(s, alone, x.rows(t, t + 1), w, kEps); });
      EXPECT_TRUE(same_bits(alone.back(), batch.view().rows(t, t + 1))) << t << " from " << first;
    }
  }
}

TEST_F(NormCuda, SumAndNorm) {
  for (const auto& c : norm_rows())
    for (const bool branch_norm : {false, true}) {
      const Array x = random_bf16({c.rows, c.columns}, 1),
                  branch = random_bf16({c.rows, c.columns}, 2),
                  w = random_bf16({c.columns}, 3, 0.3, 1.0),
                  own = branch_norm ? random_bf16({c.columns}, 4, 0.3, 1.0) : Array();
      const Array sum({c.rows, c.columns});
      add_rms_norm_forward(cpu_context(), {}, sum, x, branch, own, {}, kEps);
      const Array blank({c.rows, c.columns});
      const OnDevice dx(x), db(branch), dw(w), dn(own), dsum(blank), y(blank), again(blank);
      run_op([&](const Context& s) { add_rms_norm_forward(s, y, dsum, dx, db, dn, dw, kEps); });
      EXPECT_TRUE(within_ulp(dsum.back(), sum)) << name_of(c) << " branch norm " << branch_norm;
      run_op([&](const Context& s) { rms_norm_forward(s, again, dsum, dw, kEps); });
      EXPECT_TRUE(same_bits(y.back(), again.back()))
          << "the norm of the rounded sum, " << name_of(c);
      if (branch_norm) continue;
      run_op([&](const Context& s) { add_rms_norm_forward(s, {}, dx, dx, db, {}, {}, kEps); });
      EXPECT_TRUE(same_bits(dx.back(), dsum.back()))
          << "in place, without the norm, " << name_of(c);
    }
}

TEST_F(NormCuda, GradientsAgreeWithTheCpu) {
  for (const auto& c : norm_rows())
    for (const bool accumulate : {false, true}) {
      const Array x = random_bf16({c.rows, c.columns}, 1), dy = random_bf16({c.rows, c.columns}, 2),
                  w = random_bf16({c.columns}, 3, 0.3, 1.0);
      const Array dx = random_bf16({c.rows, c.columns}, 4), dw = Array::random({c.columns}, 5);
      const OnDevice gx(dx), gw = as_is(dw), ex(x), edy(dy), ew(w);
      run_op(
          [&](const Context& s) { rms_norm_backward(s, gx, gw, edy, ex, ew, kEps, accumulate); });
      rms_norm_backward(cpu_context(), dx, dw, dy, x, w, kEps, accumulate);
      EXPECT_TRUE(within_ulp(gx.back(), dx, kCancelled)) << "dx, " << name_of(c) << accumulate;
      EXPECT_TRUE(close_by_norm(gw.back(), dw, kSumBound, 1e-6)) << "dw, " << name_of(c);
      if (accumulate) continue;
      const OnDevice again = as_is(Array::random({c.columns}, 5));
      run_op([&](const Context& s) { rms_norm_backward(s, edy, again, edy, ex, ew, kEps, false); });
      EXPECT_TRUE(same_bits(edy.back(), gx.back())) << "dx in the memory of dy, " << name_of(c);
      EXPECT_TRUE(same_bits(again.back(), gw.back())) << "dw, the same bits, " << name_of(c);
    }
}

std::vector<cases::RowsCase> swiglu_rows() {
  std::vector<cases::RowsCase> all = cases::swiglu_values();
  all.insert(all.end(), {{64, 512}, {33, 1368}});
  return all;
}

TEST_F(ElementwiseCuda, SwigluAgreesWithTheCpu) {
  for (const auto& c : swiglu_rows()) {
    const Array gate_up = random_bf16({c.rows, 2 * c.columns}, 1, 3.0),
                dh = random_bf16({c.rows, c.columns}, 2);
    const Array h({c.rows, c.columns}), dgate_up({c.rows, 2 * c.columns});
    swiglu_forward(cpu_context(), h, gate_up);
    swiglu_backward(cpu_context(), dgate_up, {}, dh, gate_up);
    const OnDevice in(gate_up), out(Array({c.rows, c.columns})), din(dh),
        dout(Array({c.rows, 2 * c.columns}));
    run_op([&](const Context& s) { swiglu_forward(s, out, in); });
    run_op([&](const Context& s) { swiglu_backward(s, dout, {}, din, in); });
    EXPECT_TRUE(within_ulp(out.back(), h)) << name_of(c);
    EXPECT_TRUE(within_ulp(dout.back(), dgate_up, kCancelled)) << name_of(c);
    const OnDevice in_place(gate_up), again(dh);
    run_op([&](const Context& s) { swiglu_backward(s, in_place, again, again, in_place); });
    EXPECT_TRUE(same_bits(in_place.back(), dout.back())) << "in place, " << name_of(c);
    EXPECT_TRUE(same_bits(again.back(), out.back())) << "h in the memory of dh, " << name_of(c);
    for (int64_t t = 0; t < c.rows; ++t) {
      const OnDevice alone(Array({1, c.columns}));
      run_op([&](const Context& s) { swiglu_forward(s, alone, in.view().rows(t, t + 1)); });
      ASSERT_TRUE(same_bits(alone.back(), out.back().view().rows(t, t + 1))) << t << name_of(c);
    }
  }
}

TEST_F(ElementwiseCuda, SwigluAtTheEnds) {
  const OnDevice gate_up(
      Array::of({-200.0f, 200.0f, -90.0f, 0.0f, 2.0f, 3.0f, 5.0f, 7.0f}, {1, 8})),
      h(Array({1, 4}));
  run_op([&](const Context& s) { swiglu_forward(s, h, gate_up); });
  const Array got = h.back();
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_EQ(got[1], 600.0f);
  EXPECT_NEAR(got[2], 0.0f, 1e-30f);
  EXPECT_EQ(got[3], 0.0f);
}

// Exact: every result is the f32 value, rounded once if the output is bf16.
TEST_F(ElementwiseCuda, SumsScalesAndConversionsAreExact) {
  for (const Kept kept : {Kept::kCompute, Kept::kAsIs}) {
    const auto stored = [kept](const Array& a) { return kept == Kept::kCompute ? rounded(a) : a; };
    for (const int64_t n : {37, 1000}) {
      const Array a = stored(Array::random({3, n}, 1)), b = stored(Array::random({3, n}, 2));
      const Array sum({3, n}), scaled = a.clone();
      add(cpu_context(), sum, a, b);
      scale(cpu_context(), scaled, 3.0f);
      const OnDevice da(a, kept), db(b, kept), y(Array({3, n}), kept);
      run_op([&](const Context& s) { add(s, y, da, db); });
      EXPECT_TRUE(same_bits(y.back(), stored(sum))) << "add, seeds 1, 2";
      const Array more = y.back();
      add_scaled(cpu_context(), more, a, -0.5f);
      run_op([&](const Context& s) { add_scaled(s, y, da, -0.5f); });
      EXPECT_TRUE(same_bits(y.back(), stored(more))) << "add_scaled";
      run_op([&](const Context& s) { scale(s, da, 3.0f); });
      EXPECT_TRUE(same_bits(da.back(), stored(scaled))) << "scale";
      const OnDevice bf16(Array({3, n})), f32 = as_is(Array({3, n})),
                                          f32_in = as_is(Array::random({3, n}, 3));
      run_op([&](const Context& s) { copy(s, bf16, f32_in); });
      run_op([&](const Context& s) { copy(s, f32, bf16); });
      EXPECT_TRUE(same_bits(f32.back(), rounded(f32_in.back()))) << "copy";
      run_op([&](const Context& s) { fill_zero(s, y); });
      EXPECT_TRUE(same_bits(y.back(), Array({3, n}))) << "fill_zero";
    }
  }
}

TEST_F(ElementwiseCuda, RowsGatherAndScatter) {
  for (const int64_t n : {300, 512, 33}) {
    const Array x = random_bf16({6, n}, 1), rows = Array::integers({5, 0, 5, 2}),
                distinct = Array::integers({5, 0, 3, 2});
    const Array y({4, n}), dx = random_bf16({6, n}, 3);
    gather_rows(cpu_context(), y, x, rows);
    const OnDevice ex(x), er(rows), ed(distinct), ey(Array({4, n})), edx(dx);
    run_op([&](const Context& s) { gather_rows(s, ey, ex, er); });
    EXPECT_TRUE(same_bits(ey.back(), y)) << n;
    scatter_add_rows(cpu_context(), dx, y, distinct);
    run_op([&](const Context& s) { scatter_add_rows(s, edx, ey, ed); });
    EXPECT_TRUE(same_bits(edx.back(), rounded(dx))) << n;
  }
}

TEST_F(ElementwiseCuda, ElementsGather) {
  std::vector<int32_t> places;
  for (int32_t i = 0; i < 5000; ++i) places.push_back(i * 1237 % 700);
  const Array x = Array::random({700}, 1), indices = Array::integers(places), y({5000});
  gather_elements(cpu_context(), y, x, indices);
  const OnDevice ex = as_is(x), ei(indices), ey = as_is(Array({5000}));
  run_op([&](const Context& s) { gather_elements(s, ey, ex, ei); });
  EXPECT_TRUE(same_bits(ey.back(), y));
}

// The sums of dtable are in ascending t, as on the CPU: the same bits.
TEST_F(ElementwiseCuda, EmbeddingAndItsTranspose) {
  for (const int64_t width : {33, 256})
    for (const int64_t count : {5, 700}) {
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < count; ++t)
        ids.push_back(static_cast<int32_t>(t % 3 ? 3 : t * 7 % 10));
      const Array table = random_bf16({10, width}, 1), tokens = Array::integers(ids),
                  dy = random_bf16({count, width}, 2), dtable = Array::random({10, width}, 3);
      const Array y({count, width});
      embedding_forward(cpu_context(), y, table, tokens);
      const OnDevice et(table), ei(tokens), ey(Array({count, width})), edy(dy), edt = as_is(dtable);
      run_op([&](const Context& s) { embedding_forward(s, ey, et, ei); });
      EXPECT_TRUE(same_bits(ey.back(), y)) << width;
      embedding_backward(cpu_context(), dtable, dy, tokens);
      run_op([&](const Context& s) { embedding_backward(s, edt, edy, ei); });
      EXPECT_TRUE(same_bits(edt.back(), dtable)) << width << " wide, " << count << " tokens";
    }
}

// Tokens before, inside and after the shard, with and without vectorised loads.
TEST_F(ElementwiseCuda, EmbeddingOfAShard) {
  for (const int64_t width : {33, 256, 4104}) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < 300; ++t) ids.push_back(t * 7 % 40);
    const Array shard = random_bf16({10, width}, 1), tokens = Array::integers(ids),
                y = random_bf16({300, width}, 2);
    const OnDevice es(shard), ei(tokens), ey(y);
    embedding_shard_forward(cpu_context(), y, shard, tokens, 20);
    run_op([&](const Context& s) { embedding_shard_forward(s, ey, es, ei, 20); });
    EXPECT_TRUE(same_bits(ey.back(), y)) << width;
  }
}

// Copies into columns of wider rows; the other columns stay unchanged.
TEST_F(ElementwiseCuda, CopyOfRows) {
  for (const int64_t width : {12, 13, 37888}) {
    const Array x = Array::random({5, width}, 1), y = Array::random({5, 3 * width + 4}, 2);
    const OnDevice ex = as_is(x), ey = as_is(y);
    const auto columns = [&](const Tensor& t) { return t.columns(width + 4, 2 * width + 4); };
    copy_rows(cpu_context(), columns(y.view()), x);
    run_op([&](const Context& s) { copy_rows(s, columns(ey), ex); });
    EXPECT_TRUE(same_bits(ey.back(), y)) << width;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
