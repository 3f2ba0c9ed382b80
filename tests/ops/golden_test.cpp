// Compares values and gradients with torch: tests/ops/golden/ops.jsonl, written by
// scripts/golden/make_ops_golden.py.
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ops/testing.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/optimizer.h"
#include "test_paths.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Golden);

class Record {
 public:
  explicit Record(Json json) : json_(std::move(json)) {}
  std::string op() const { return json_.at("op"); }
  float setting(const std::string& name) const { return json_.at("settings").at(name); }
  Array in(const std::string& name) const { return array(json_.at("in").at(name)); }
  std::vector<int32_t> integers(const std::string& name) const {
    return json_.at("in").at(name).at("data");
  }
  // A zeroed array with the shape of an expected output.
  Array blank(const std::string& name) const { return make(json_.at("out").at(name).at("shape")); }
  void expect(const std::string& name, const Array& got, double absolute = 2e-6) const {
    const std::vector<double> expected = json_.at("out").at(name).at("data");
    EXPECT_TRUE(close(got, expected, 1e-5, absolute)) << op() << ": " << name;
  }

 private:
  static Array make(const std::vector<int64_t>& s) {
    if (s.size() == 1) return Array({s[0]});
    if (s.size() == 2) return Array({s[0], s[1]});
    return Array({s.at(0), s.at(1), s.at(2)});
  }
  static Array array(const Json& tensor) {
    Array a = make(tensor.at("shape"));
    const std::vector<float> data = tensor.at("data");
    EXPECT_EQ(static_cast<int64_t>(data.size()), a.size());
    std::copy(data.begin(), data.end(), a.view().f32());
    return a;
  }
  Json json_;
};

void check_matmul(const Context& ctx, const Record& r) {
  const Array x = r.in("x"), w = r.in("w"), dy = r.in("dy");
  const Array y = r.blank("y"), dx = r.blank("dx"), dw = r.blank("dw"), dbias = r.blank("dbias");
  matmul_forward(ctx, y, x, {w, r.in("bias")});
  matmul_backward_input(ctx, dx, dy, w, false);
  matmul_backward_weight(ctx, dw, dbias, dy, x);
  r.expect("y", y);
  r.expect("dx", dx);
  r.expect("dw", dw);
  r.expect("dbias", dbias);
}

void check_rms_norm(const Context& ctx, const Record& r) {
  const Array x = r.in("x"), w = r.in("w"), y = r.blank("y"), dx = r.blank("dx"),
              dw = r.blank("dw");
  rms_norm_forward(ctx, y, x, w, r.setting("eps"));
  rms_norm_backward(ctx, dx, dw, r.in("dy"), x, w, r.setting("eps"), false);
  r.expect("y", y);
  r.expect("dx", dx);
  r.expect("dw", dw);
}

void check_swiglu(const Context& ctx, const Record& r) {
  const Array gate_up = r.in("gate_up"), h = r.blank("h"), dgate_up = r.blank("dgate_up");
  swiglu_forward(ctx, h, gate_up);
  swiglu_backward(ctx, dgate_up, {}, r.in("dh"), gate_up);
  r.expect("h", h);
  r.expect("dgate_up", dgate_up);
}

void check_attention(const Context& ctx, const Record& r) {
  const Array q = r.in("q"), k = r.in("k"), v = r.in("v");
  const Array out = r.blank("out"), dq = r.blank("dq"), dk = r.blank("dk"), dv = r.blank("dv");
  const Array lse({q.view().dim(0), q.view().dim(1)});
  const std::vector<int32_t> cu = r.integers("cu_seqlens");
  const AttentionLayout layout{cu, {}, {}, 0};
  attention_forward(ctx, out, lse, q, k, v, layout, r.setting("scale"));
  attention_backward(ctx, dq, dk, dv, r.in("dout"), q, k, v, out, lse, layout, r.setting("scale"));
  r.expect("out", out);
  r.expect("dq", dq);
  r.expect("dk", dk, 1e-5);
  r.expect("dv", dv, 1e-5);
}

void check_log_probs(const Context& ctx, const Record& r) {
  const Array logits = r.in("logits"), lse({logits.view().dim(0)});
  const Array log_probs = r.blank("log_probs"), entropies = r.blank("entropies"),
              dlogits = r.blank("dlogits");
  const Array targets = Array::integers(r.integers("targets"));
  normalize_logits(ctx, logits, lse, r.setting("temperature"));
  gather_log_probs(ctx, log_probs, entropies, logits, lse, targets);
  log_probs_backward(ctx, dlogits, logits, lse, targets, entropies, r.in("dlog_probs"),
                     r.in("dentropies"), r.setting("temperature"));
  r.expect("log_probs", log_probs);
  r.expect("entropies", entropies);
  r.expect("dlogits", dlogits);
}

void check_adamw(const Context& ctx, const Record& r) {
  const Array p = r.in("p"), m = r.blank("exp_avg"), v = r.blank("exp_avg_sq"),
              gradients = r.in("gradients");
  AdamWStep step{.lr = r.setting("lr"),
                 .beta1 = r.setting("beta1"),
                 .beta2 = r.setting("beta2"),
                 .eps = r.setting("eps"),
                 .weight_decay = r.setting("weight_decay"),
                 .step = 0,
                 .gradient_scale = 1.0f};
  for (int64_t i = 0; i < gradients.view().dim(0); ++i) {
    step.step = i + 1;
    adamw(ctx, p, p, m, v, gradients.view().rows(i, i + 1).reshaped({p.size()}), step);
  }
  r.expect("p", p);
  r.expect("exp_avg", m);
  r.expect("exp_avg_sq", v);
}

TEST_P(Golden, AgreesWithTorch) {
  const std::map<std::string, void (*)(const Context&, const Record&)> checks{
      {"matmul", check_matmul},       {"rms_norm", check_rms_norm},   {"swiglu", check_swiglu},
      {"attention", check_attention}, {"log_probs", check_log_probs}, {"adamw", check_adamw}};
  const std::string path = test_data_path("ops/golden/ops.jsonl");
  std::istringstream lines(read_text_file(path));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Record record(parse_json(line, path));
    ASSERT_TRUE(checks.contains(record.op())) << record.op();
    checks.at(record.op())(ctx_, record);
  }
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace slimexx::ops::testing
