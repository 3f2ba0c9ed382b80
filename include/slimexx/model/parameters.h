// Every parameter of a rank in contiguous buffers: weights (of the device's compute dtype) and f32
// gradients of the same layout. ParameterInfo says what each is called on disk, how it is
// sharded and whether it decays; loaders, optimizer, checkpoints and weight plans are written over
// that list alone.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/model/spec.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::io {
class HfFolder;
class Checkpoint;
}  // namespace slimexx::io

namespace slimexx::model {

enum class GridDim : uint8_t { kNone, kTensor, kExpert };
enum class InitKind : uint8_t { kNormal, kOnes, kZeros };

// A tensor on disk that is rows of a parameter: elements [begin, end) of the flattened parameter.
struct HfPart {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;
};

struct ParameterInfo {
  std::string name;                 // "layers.3.attention.qkv.weight"
  std::vector<int64_t> shape = {};  // one or two dimensions
  bool decayed = true;              // 1-D parameters are not
  int shard_axis = -1;              // the dimension that is split over shard_dim, -1: replicated
  GridDim shard_dim = GridDim::kNone;
  InitKind init = InitKind::kNormal;
  std::vector<HfPart> parts = {};  // cover the parameter exactly
  int64_t offset = 0;              // elements from the start of the flat buffer; set by the store
  int64_t num_elements() const;
};

class ParameterStore {
 public:
  ParameterStore(const ModelSpec& spec, tensor::Device device, bool with_gradients);
  // Weights alone, in `memory` [at least weight_bytes] U8, which its owner keeps while this lives.
  ParameterStore(const ModelSpec& spec, tensor::Tensor memory);
  static int64_t weight_bytes(const ModelSpec& spec, tensor::Device device);
  const std::vector<ParameterInfo>& infos() const { return infos_; }
  int64_t num_elements() const {
    return num_elements_;
  }  // of the flat buffers, gaps for alignment included
  tensor::Tensor weight(const std::string& name) const;  // in its shape; SLX_CHECKs that it exists
  tensor::Tensor gradient(const std::string& name) const;
  bool contains(const std::string& name) const;
  // Between host values and elements [begin, begin + n) of a parameter's weights, rounded to their
  // type on the way in. Both wait for the device.
  void write_weights(const ParameterInfo& info, int64_t begin, const float* values, int64_t n);
  void read_weights(const ParameterInfo& info, int64_t begin, float* values, int64_t n) const;
  tensor::Tensor flat_weights() const { return flat_weights_; }      // [num_elements]
  tensor::Tensor flat_gradients() const { return flat_gradients_; }  // undefined without gradients

 private:
  void place_parameters(const ModelSpec& spec);
  tensor::Tensor view(const tensor::Tensor& flat, const std::string& name) const;
  tensor::Device device_;
  std::vector<ParameterInfo> infos_;
  int64_t num_elements_ = 0;
  tensor::Buffer weights_, gradients_;
  tensor::Tensor flat_weights_, flat_gradients_;
};

// Fills the weights from a folder. Throws Error(kInput) listing missing, extra, misshapen tensors,
// a tied lm_head that differs from the embedding, and NaN or Inf values (count, tensor, first
// index).
// `on_loaded` is told the number of elements after every tensor (progress).
void load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                     const std::function<void(int64_t)>& on_loaded = {});
// From a checkpoint's section "master" if it has one, else "weights".
void load_checkpoint_weights(ParameterStore& store, const ModelSpec& spec,
                             const io::Checkpoint& checkpoint);
// N(0, initializer_range), ones and zeros by kind, a function of seed and the parameter's name
// alone.
void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed);

}  // namespace slimexx::model
