// Grouped products that end in SwiGLU.
#include "kernels/experts/launch.cuh"
#include "kernels/gemm/swiglu/swiglu_epilogue.cuh"

namespace slimexx::kernels {
namespace {

template <class Tile>
const char* launch(const GroupedGemmArgs& args, const GemmConfig& config, int sm_count,
                   cudaStream_t stream) {
  GemmProblem p{};
  if (!describe_grouped<Tile>(p, args, config, args.n, args.k)) return map_refused();
  const int64_t f = args.n / 2;
  p.features = static_cast<int>(f);
  p.y_stride = f;
  p.weight_rows = static_cast<int>(2 * args.n);  // see encode_gate_up
  const int weight_rows = Tile::kSwap ? p.rows : p.columns;
  CUtensorMap* weights = Tile::kSwap ? &p.a : &p.b;
  if (!encode_gate_up(weights, args.w, f, args.k, weight_rows, Tile::kBoxes, args.rows.experts) ||
      (args.shared_w != nullptr &&
       !encode_gate_up(&p.shared, args.shared_w, f, args.k, weight_rows, Tile::kBoxes, 1)) ||
      !encode_bf16_matrix(&p.y, args.y, args.rows.rows, f, f, 64)) {
    return map_refused();
  }
  return start_variant<GateUpTile<Tile>>(p, config, sm_count, stream, StoreSwiglu{});
}

}  // namespace

const char* launch_grouped_swiglu(const GroupedGemmArgs& args, const GemmConfig& config,
                                  int sm_count, cudaStream_t stream) {
  const auto fits = [&]<class Tile>(Tile) { return matches<Tile>(config); };
  if (fits(GroupedPlainTile<128, 256>{}))
    return launch<GroupedPlainTile<128, 256>>(args, config, sm_count, stream);
  if (fits(GroupedPlainTile<128, 192>{}))
    return launch<GroupedPlainTile<128, 192>>(args, config, sm_count, stream);
  if (fits(GroupedPlainTile<128, 128>{}))
    return launch<GroupedPlainTile<128, 128>>(args, config, sm_count, stream);
  if (fits(GroupedSwappedTile<64, 32>{}))
    return launch<GroupedSwappedTile<64, 32>>(args, config, sm_count, stream);
  if (fits(GroupedSwappedTile<64, 64>{}))
    return launch<GroupedSwappedTile<64, 64>>(args, config, sm_count, stream);
  return no_such_variant();
}

}  // namespace slimexx::kernels
