// The encoded form of weights: values of a smaller type with a scale per block, which the products
// of every forward pass read (ops/linear.h). Each update of the plain weights derives it again, and
// an engine gets only this form.
//
// On disk a block is block_rows x block_columns elements of one tensor. In memory a scale belongs
// to unit_rows rows, because a parameter may have the rows of a block in another order (heads of
// latent attention); all units of a block have the same scale.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/float8.h"

namespace slimexx::model {

struct ModelSpec;

struct Encoding {
  tensor::DType values = tensor::DType::kF8E4M3;
  int64_t block_rows = 128, block_columns = 128, unit_rows = ops::kF8UnitRows;
  tensor::F8ScaleRule rule = tensor::F8ScaleRule::kPowerOfTwo;
  // True: training computes from the plain weights, which keep their values; only engines compute
  // from the encoded form. False: all forward passes compute from it.
  bool is_for_engines = false;
  void (*encode)(const ops::Context&, const ops::QuantisedBlocks&) = ops::quantise_blocks;

  int64_t units_per_block() const { return block_rows / unit_rows; }
};

// Sets spec.encoding, and spec.encoded to the names of the matrices that `encoding` can hold: the
// weights of a Linear whose blocks are never split between ranks (tensor and expert tensor
// parallelism). `sizes` has the largest sizes of all grids that hold the model, so that all of them
// encode the same matrices.
void choose_encoded(ModelSpec& spec, const Encoding& encoding, const dist::GridSizes& sizes);

// Lists the units of each block of an encoded parameter [N,K] or [E,N,K]. The result is a table
// [blocks, units_per_block] of unit numbers, which count over all rows of the parameter; -1 where a
// block at the end of a tensor has fewer units. nullopt if a unit has rows of several blocks, or if
// the parameter has only a part of a block.
std::optional<std::vector<int32_t>> list_block_units(const ParameterInfo& info,
                                                     const Encoding& encoding);

// The parameters that hold the encoded form of `infos`, two per encoded parameter, in order: values
// and scales. Their parts lie in tensors that no folder has, which is enough to move and to hash
// the parameters.
std::vector<ParameterInfo> list_derived(const std::vector<ParameterInfo>& infos);

// The parameters that engines receive and that hashes cover: plain parameters without an encoding,
// then the derived ones. Ids are those in a store of this list.
Layout list_moved(const Layout& layout);
// `layout` without the plain form of encoded parameters, for engines.
Layout without_plain(const Layout& layout);

// Encodes every encoded parameter of the store. Its plain values are rounded to the encoded ones,
// unless the encoding is_for_engines.
// `changed` ([1] i64, or undefined) is increased by the number of values whose bytes changed.
void encode_weights(const ops::Context& ctx, const ParameterStore& store,
                    tensor::Tensor changed = {});

}  // namespace slimexx::model
