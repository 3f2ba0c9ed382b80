// Every parameter of a rank in contiguous buffers, a group each for every reduce group, element
// type and trainability: weights and, of trainable ones, f32 gradients of the same layout.
// ParameterInfo says what each is called on disk, how a grid cuts it and whether it decays;
// loaders, optimizer, checkpoints and weight plans are written over that list alone.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slimexx/tensor/dtype.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::io {
class HfFolder;
class Checkpoint;
struct CheckpointPiece;
}  // namespace slimexx::io

namespace slimexx::model {

struct ModelSpec;

using ParameterId = int32_t;  // index into ParameterStore::infos()
inline constexpr ParameterId kNoParameter = -1;

// Embeddings of tokens and projections into the residual stream are normal as well; where random
// weights spread tokens (init_random_weights), of ranges of their own.
enum class InitKind : uint8_t { kNormal, kEmbedding, kResidual, kOnes, kZeros };
// The ranks that sum a gradient, as dist::Groups calls them: dp_cp, tp_dp_cp, edp. kReplicated is
// set by a Layout, for dense parameters that tp ranks hold alike: each has gradients of its own
// rows.
enum class ReduceGroup : uint8_t { kDense, kReplicated, kExpert };
enum class GridDim : uint8_t { kNone, kTensor, kExpert };  // kTensor is etp where they are experts

// A box of a tensor on disk and its place in a parameter. The store fills in what is left empty.
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
  // Of the ranks that hold this box, data-parallel ones aside, this one counts it in norms and
  // writes it to checkpoints; set by a Layout.
  bool is_counted = true;
  // What an export writes it in, as spec.h's kept_dtypes and checkpoint_dtype have it; the
  // parameter's where it is empty.
  std::optional<tensor::DType> dtype = {};
};

// How an axis of the grid cuts a dimension of a parameter. Each section of the dimension is cut
// evenly, in multiples of `unit`: queries, keys and values stand one below the other, and a rank
// gets heads of each. With fewer units than ranks, neighbouring ranks hold the same unit.
struct ShardSection {
  int64_t size = 0, unit = 1;
};
struct Shard {
  int axis = 0;  // dimension of the parameter
  GridDim dim = GridDim::kTensor;
  std::vector<ShardSection> sections = {};  // empty: one that is the whole dimension
  // Of experts in an engine: ranks hold so many copies of them, as ExpertPlacement has it. 0: even
  // shares of the experts.
  int64_t num_copies = 0;
};

struct ParameterInfo {
  std::string name;                 // "layers.3.attention.qkv.weight"
  std::vector<int64_t> shape = {};  // one to three dimensions
  bool decayed = true;              // 1-D parameters are not
  // False: it has no gradient, and its bytes never change, unless a rule of the trainer moves it.
  bool trainable = true;
  bool moved_by_rule = false;               // a router's correction bias: a resumed run loads it
  bool frozen_by_name = false;              // of ModelSpec::frozen: a resumed run loads it
  std::optional<tensor::DType> dtype = {};  // empty: the device's compute type
  ReduceGroup reduce_group = ReduceGroup::kDense;
  std::vector<Shard> shards = {};  // empty: replicated
  InitKind init = InitKind::kNormal;
  // Backward adds to its gradient; the gradients of the others it writes first.
  bool zero_before_backward = false;
  std::vector<HfPart> parts = {};  // cover the parameter exactly

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
  int64_t num_elements = 0;       // gaps for alignment included
  tensor::Tensor weights = {};    // [num_elements]
  tensor::Tensor gradients = {};  // [num_elements] F32; undefined if frozen or without gradients
};

struct Layout;

class ParameterStore {
 public:
  ParameterStore(std::vector<ParameterInfo> infos, tensor::Device device, bool with_gradients);
  // Weights alone, in `memory` [at least weight_bytes] U8, which its owner keeps while this lives.
  ParameterStore(std::vector<ParameterInfo> infos, tensor::Tensor memory);
  static int64_t weight_bytes(std::vector<ParameterInfo> infos, tensor::Device device);
  // The same of all the parameters of a model.
  ParameterStore(const ModelSpec& spec, tensor::Device device, bool with_gradients);
  ParameterStore(const ModelSpec& spec, tensor::Tensor memory);
  static int64_t weight_bytes(const ModelSpec& spec, tensor::Device device);

  const std::vector<ParameterInfo>& infos() const { return infos_; }
  // In order of each group's first parameter. A dense model has one.
  std::span<const ParameterGroup> groups() const { return groups_; }
  const ParameterGroup& group_of(const ParameterInfo& info) const {
    return groups_[static_cast<size_t>(info.group)];
  }
  ParameterId find(std::string_view name) const;  // kNoParameter if there is none
  // In its shape. Undefined for kNoParameter; a gradient also for frozen parameters.
  tensor::Tensor weight(ParameterId id) const;
  tensor::Tensor gradient(ParameterId id) const;  // SLX_CHECKs that the store has gradients
  // Between host values and elements [begin, begin + n) of a parameter's weights, rounded to their
  // type on the way in. Both wait for the device.
  void write_weights(const ParameterInfo& info, int64_t begin, const float* values, int64_t n);
  void read_weights(const ParameterInfo& info, int64_t begin, float* values, int64_t n) const;
  void read_gradients(const ParameterInfo& info, int64_t begin, float* values, int64_t n) const;
  int64_t num_elements() const;  // of all groups
  // Of a store with one group.
  tensor::Tensor flat_weights() const { return only_group().weights; }
  tensor::Tensor flat_gradients() const { return only_group().gradients; }
  // The bytes of all groups' gradients [n] U8; undefined without gradients.
  tensor::Tensor gradient_memory() const;

 private:
  void complete_infos();
  void place_weights(char* memory);
  const ParameterGroup& only_group() const;
  const ParameterInfo& info(ParameterId id) const;
  tensor::Tensor view(const tensor::Tensor& flat, const ParameterInfo& info) const;
  tensor::Device device_;
  std::vector<ParameterInfo> infos_;
  std::unordered_map<std::string_view, ParameterId> ids_;  // names of infos_
  std::vector<ParameterGroup> groups_;
  tensor::Buffer weights_, gradients_;
};

// Fills the weights from a folder. Throws Error(kInput) listing missing, extra, misshapen tensors,
// a tied lm_head that differs from the embedding, and NaN or Inf values (count, tensor, first
// index).
// A store of a shard reads its boxes alone; then `layout` says which tensors are other ranks'.
// `on_loaded` is told the number of elements after every tensor (progress).
void load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                     const std::function<void(int64_t)>& on_loaded = {},
                     const Layout* layout = nullptr);
// From a checkpoint's section "master" if it has one, else "weights".
void load_checkpoint_weights(ParameterStore& store, const io::Checkpoint& checkpoint);
// The same rounded to the types that an export has them in (io::list_weights).
void load_exported_weights(ParameterStore& store, const io::Checkpoint& checkpoint,
                           tensor::DType config_dtype);
// Elements [begin, end) of a parameter as pieces of a checkpoint's tensors: ranges where they are
// no more than boxes would be. `values`, of `dtype`, points to where the parameter's first element
// lies, or would. Boxes that another rank counts are left to it.
void add_checkpoint_pieces(const ParameterInfo& info, int64_t begin, int64_t end,
                           const std::string& section, tensor::DType dtype, const void* values,
                           std::vector<io::CheckpointPiece>& pieces);
// N(0, initializer_range), ones and zeros by kind, a function of seed and the parameter's name
// alone. `spread_tokens`: tokens stay as different from layer to layer as in a trained model. The
// embedding is N(0, 1), unless it is the head too, and projections into the residual stream are
// divided by sqrt(2 layers), as Megatron initialises them. Else what attention adds to all tokens
// alike soon outweighs them, and routers send all of them to the same experts.
void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed,
                         bool spread_tokens = false);

}  // namespace slimexx::model
