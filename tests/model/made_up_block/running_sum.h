// A block of no model family. It tests that a block with a state per sequence needs no code outside
// its own files. It replaces attention by a decayed running sum of values:
//   v_t = W_v x_t;   s_t = decay s_{t-1} + v_t, from 0 at the start of a sequence;   y_t = W_o s_t
// The state of a sequence is s_t [D], whatever its length.
//
// Legend: T packed tokens, H hidden size, D width of the sum. CPU only, on one rank.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/batch.h"
#include "slimexx/model/block_traits.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct RunningSumParameters {
  T v_weight;  // [D,H]
  T o_weight;  // [H,D]
};
template <class View>
RunningSumParameters<Tensor> bind(const RunningSumParameters<ParameterId>& p, const View& view) {
  return {view(p.v_weight), view(p.o_weight)};
}

struct RunningSumTape {
  Tensor values = {};  // [T,D]
  Tensor sums = {};    // [T,D]
};

struct RunningSumSpec {
  template <class T>
  using Parameters = RunningSumParameters<T>;
  using Tape = RunningSumTape;

  int64_t hidden_size = 0, width = 0;
  float decay = 0.9f;
  int64_t leaves = 1;
  bool operator==(const RunningSumSpec&) const = default;
};

RunningSumSpec narrow(const RunningSumSpec& spec, const dist::GridSizes& sizes);
RunningSumParameters<ParameterId> declare(ParameterList& list, const RunningSumSpec& spec,
                                          const std::string& own, const std::string& hf);
void check_device_sizes(const RunningSumSpec& spec, tensor::Device device);
double forward_flops(const RunningSumSpec& spec, int64_t num_tokens);

inline const char* kind_name(const RunningSumSpec&) { return "running sum"; }
std::string describe(const RunningSumSpec& spec);
inline RateClass rate_class(const RunningSumSpec&) { return RateClass::kDense; }
inline CacheKind cache_kind(const RunningSumSpec&) { return CacheKind::kState; }
inline int64_t count_named_boxes(const RunningSumSpec&) { return 0; }
inline int64_t rotary_head_dim(const RunningSumSpec& spec) { return spec.width; }
inline double score_factor(const RunningSumSpec&) { return 1; }
inline void set_leaves(RunningSumSpec& spec, int64_t leaves) { spec.leaves = leaves; }
inline void set_fp8_cache(RunningSumSpec&) {}  // no keys
inline std::vector<CopiedRows> list_copied_rows(const RunningSumSpec&, const RunningSumSpec&,
                                                const RunningSumParameters<Tensor>&, int) {
  return {};
}

void allocate_kept(Arena& arena, const RunningSumSpec& spec, const RowCounts& rows, LayerKeep level,
                   RunningSumTape& tape);
void allocate_rest(Arena& arena, const RunningSumSpec& spec, const RowCounts& rows,
                   RunningSumTape& tape);
inline bool keeps_qkv(const RunningSumTape& tape) { return tape.values.defined(); }

// This block has no pages.
inline int64_t page_bytes(const RunningSumSpec&, DType, int64_t) { return 0; }
inline LayerPages make_pages(const RunningSumSpec&, DType, Tensor, int64_t, int64_t) { return {}; }

void project_qkv(const ops::Context& ctx, const RunningSumSpec& spec,
                 const RunningSumParameters<Tensor>& w, const ops::RotaryTable& rotary,
                 const Batch& batch, const LayerPages& pages, const RunningSumTape& tape,
                 Tensor normed);
inline KeyChoice key_choice(const RunningSumSpec&) { return {}; }
inline void select_keys(const ops::Context&, const RunningSumSpec&,
                        const RunningSumParameters<Tensor>&, const ops::RotaryTable&, const Batch&,
                        const LayerPages&, const RunningSumTape&, Tensor, Tensor) {}
void attend(const ops::Context& ctx, const RunningSumSpec& spec,
            const RunningSumParameters<Tensor>& w, const ops::RotaryTable& rotary,
            const Batch& batch, const LayerPages& pages, const RunningSumTape& tape);
void project_out(const ops::Context& ctx, const RunningSumSpec& spec,
                 const RunningSumParameters<Tensor>& w, const Batch& batch,
                 const RunningSumTape& tape, Tensor o);
void backward(const ops::Context& ctx, const RunningSumSpec& spec,
              const RunningSumParameters<Tensor>& w, const RunningSumParameters<Tensor>& g,
              const ops::RotaryTable& rotary, const Batch& batch, const RunningSumTape& tape,
              Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next);

}  // namespace slimexx::model
