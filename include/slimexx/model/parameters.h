// All parameters of a rank in contiguous buffers, one group per combination of reduce group,
// element type and trainability: weights and, for trainable groups, f32 gradients of the same
// layout. ParameterInfo holds a parameter's names on disk, its sharding and whether it decays.
// Loaders, optimizer, checkpoints and weight plans use only the list of ParameterInfos.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slimexx/ops/linear.h"
#include "slimexx/tensor/dtype.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::io {
class HfFolder;
class Checkpoint;
struct CheckpointPiece;
}  // namespace slimexx::io

namespace slimexx::model {

struct Encoding;
struct ModelSpec;

using ParameterId = int32_t;  // index into ParameterStore::infos()
inline constexpr ParameterId kNoParameter = -1;

// kEmbedding and kResidual (projections into the residual stream) are normally distributed too;
// with spread_tokens (init_random_weights) they have their own standard deviations.
enum class InitKind : uint8_t { kNormal, kEmbedding, kResidual, kOnes, kZeros };
// The ranks that sum a gradient, by their names in dist::Groups: dp_cp, tp_dp_cp, edp. A Layout
// sets kReplicated for dense parameters that are the same on all tp ranks, because each tp rank has
// the gradient from its own rows only.
enum class ReduceGroup : uint8_t { kDense, kReplicated, kExpert };
enum class GridDim : uint8_t { kNone, kTensor, kExpert };  // kTensor: etp for experts

// A box of a tensor on disk and its place in a parameter. The store fills in empty fields.
struct HfPart {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor on disk: one to three dimensions
  // Index in the parameter of the box's first element. The box's dimensions are the parameter's
  // last ones: a tensor [rows, columns] may be one expert of [experts, rows, columns]. Empty:
  // zeros.
  std::vector<int64_t> at = {};
  std::vector<int64_t> begin = {}, size = {};  // the box in the tensor on disk; empty: all of it
  // Neighbouring rows of the box (elements, if it has one dimension) are this many rows apart in
  // the parameter: 2 turns two halves into pairs.
  int64_t row_step = 1;
  // Among the ranks that hold this box, apart from data-parallel replicas, exactly one counts it in
  // norms and writes it to checkpoints: the rank with true. Set by a Layout.
  bool is_counted = true;
  // Type in an export, from kept_dtypes and checkpoint_dtype (spec.h); empty: the parameter's type.
  std::optional<tensor::DType> dtype = {};
};

// How an axis of the grid shards a dimension of a parameter. Each section of the dimension is split
// evenly, in multiples of `unit`: in a fused QKV weight the sections are queries, keys and values,
// and a rank gets heads of each. With fewer units than ranks, neighbouring ranks hold the same
// unit.
struct ShardSection {
  int64_t size = 0, unit = 1;
};
struct Shard {
  int axis = 0;  // dimension of the parameter
  GridDim dim = GridDim::kTensor;
  std::vector<ShardSection> sections = {};  // empty: one section, the whole dimension
  // Engine only: physical experts including redundant ones (see ExpertPlacement). 0: experts are
  // split evenly.
  int64_t num_copies = 0;
};

struct ParameterInfo {
  std::string name;                 // "layers.3.attention.qkv.weight"
  std::vector<int64_t> shape = {};  // one to three dimensions
  bool decayed = true;              // 1-D parameters are not
  // False: the parameter has no gradient and never changes, unless moved_by_rule.
  bool trainable = true;
  bool moved_by_rule = false;               // a router's correction bias: a resumed run loads it
  bool frozen_by_name = false;              // in ModelSpec::frozen: a resumed run loads it
  std::optional<tensor::DType> dtype = {};  // empty: the device's compute type
  ReduceGroup reduce_group = ReduceGroup::kDense;
  std::vector<Shard> shards = {};  // empty: replicated
  InitKind init = InitKind::kNormal;
  // True: backward only adds to this gradient. False: backward overwrites it unless `accumulate`.
  bool zero_before_backward = false;
  std::vector<HfPart> parts = {};  // cover the parameter exactly
  bool is_linear = false;          // the weight of a Linear, which may be held encoded
  // Set if the store holds the encoded form too (encoding.h), or only that (has_plain is false).
  std::shared_ptr<const Encoding> encoding = {};
  bool has_plain = true;
  bool is_derived = false;  // values or scales of an encoded parameter

  // Set by the store.
  ParameterId id = kNoParameter;
  int32_t group = 0;   // index into ParameterStore::groups()
  int64_t offset = 0;  // elements from the start of the group's flat tensors
  int64_t num_elements() const;
};

struct ParameterGroup {
  ReduceGroup reduce_group = ReduceGroup::kDense;
  tensor::DType dtype = tensor::DType::kF32;
  bool trainable = true;
  bool is_derived = false;        // encoded values, or scales
  int64_t num_elements = 0;       // gaps for alignment included
  tensor::Tensor weights = {};    // [num_elements]
  tensor::Tensor gradients = {};  // [num_elements] F32; undefined if frozen or without gradients
};

struct Layout;

class ParameterStore {
 public:
  ParameterStore(std::vector<ParameterInfo> infos, tensor::Device device, bool with_gradients);
  // Weights only, in `memory` [at least weight_bytes] U8, which must outlive the store.
  ParameterStore(std::vector<ParameterInfo> infos, tensor::Tensor memory);
  static int64_t weight_bytes(std::vector<ParameterInfo> infos, tensor::Device device);
  // Stores of all parameters of a model.
  ParameterStore(const ModelSpec& spec, tensor::Device device, bool with_gradients);
  ParameterStore(const ModelSpec& spec, tensor::Tensor memory);
  static int64_t weight_bytes(const ModelSpec& spec, tensor::Device device);

  // The parameters, without the derived ones.
  const std::vector<ParameterInfo>& infos() const { return infos_; }
  // Values and scales of encoded parameters (list_derived). Their ids follow those of infos().
  const std::vector<ParameterInfo>& derived() const { return derived_; }
  // In order of each group's first parameter. A dense model has one group.
  std::span<const ParameterGroup> groups() const { return groups_; }
  const ParameterGroup& group_of(const ParameterInfo& info) const {
    return groups_[static_cast<size_t>(info.group)];
  }
  ParameterId find(std::string_view name) const;  // kNoParameter if there is none
  // Any parameter of the store, derived ones included.
  const ParameterInfo& info(ParameterId id) const;
  // Views in the parameter's shape. Undefined for kNoParameter and for a parameter without its
  // plain form; gradients are also undefined for frozen parameters.
  tensor::Tensor weight(ParameterId id) const;
  // The plain weight and, if the parameter is encoded, its values and scales.
  ops::Linear linear(ParameterId id) const;
  // The units of the parameter's blocks [B, units per block] i32 (list_block_units); undefined if
  // the parameter is not encoded.
  tensor::Tensor block_units(ParameterId id) const;
  tensor::Tensor gradient(ParameterId id) const;  // SLX_CHECKs that the store has gradients
  // Copy between host values and elements [begin, begin + n) of a parameter. Writing rounds to the
  // type of the weights. All these functions wait for the device.
  void write_weights(const ParameterInfo& info, int64_t begin, const float* values, int64_t n);
  void read_weights(const ParameterInfo& info, int64_t begin, float* values, int64_t n) const;
  // Like write_weights, for values of the parameter's own type.
  void write_bytes(const ParameterInfo& info, int64_t begin, const void* values, int64_t n);
  void read_gradients(const ParameterInfo& info, int64_t begin, float* values, int64_t n) const;
  int64_t num_elements() const;  // of all groups that are not derived
  // The bytes of all groups' gradients [n] U8; undefined without gradients.
  tensor::Tensor gradient_memory() const;

 private:
  void complete_infos();
  void list_units();
  void place_weights(char* memory);
  tensor::Tensor view(const tensor::Tensor& flat, const ParameterInfo& info) const;
  tensor::Device device_;
  std::vector<ParameterInfo> infos_, derived_;              // derived: see list_derived
  std::unordered_map<std::string_view, ParameterId> ids_;   // names of infos_
  std::unordered_map<ParameterId, ParameterId> values_of_;  // by encoded parameter
  std::vector<ParameterGroup> groups_;
  tensor::Buffer weights_, gradients_;
  tensor::Buffer units_;                                      // i32
  std::unordered_map<ParameterId, tensor::Tensor> units_of_;  // views of units_
};

// Fills the weights from a folder. Throws Error(kInput) listing missing, extra, misshapen tensors,
// a tied lm_head that differs from the embedding, and NaN or Inf values (count, tensor, first
// index).
// A store of a shard reads only its own boxes; then `layout` tells which tensors belong to other
// ranks. `on_loaded` gets the number of elements after every tensor (progress).
void load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                     const std::function<void(int64_t)>& on_loaded = {},
                     const Layout* layout = nullptr);
// Loads a checkpoint's section "master" if it has one, otherwise "weights".
void load_checkpoint_weights(ParameterStore& store, const io::Checkpoint& checkpoint);
// Like load_checkpoint_weights, but rounds to the types of an export (io::list_weights).
void load_exported_weights(ParameterStore& store, const io::Checkpoint& checkpoint,
                           tensor::DType config_dtype);
// Appends elements [begin, end) of a parameter as pieces of a checkpoint's tensors: as ranges, or
// as boxes if these are fewer. `values`, of `dtype`, is the address of the parameter's first
// element, even if only [begin, end) exists. Skips boxes that another rank counts.
void add_checkpoint_pieces(const ParameterInfo& info, int64_t begin, int64_t end,
                           const std::string& section, tensor::DType dtype, const void* values,
                           std::vector<io::CheckpointPiece>& pieces);
// Initialises by kind: N(0, initializer_range), ones or zeros. Values depend only on the seed and
// the parameter's name. `spread_tokens` keeps tokens as distinct across layers as in a trained
// model: the embedding is N(0, 1), unless it is also the head, and projections into the residual
// stream are divided by sqrt(2 layers), as in Megatron. Otherwise the component that attention adds
// to all tokens soon dominates, and routers send all tokens to the same experts.
void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed,
                         bool spread_tokens = false);

}  // namespace slimexx::model
