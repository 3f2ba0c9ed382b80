// Gradients of grouped products with respect to their rows: each sum is one chain over the rows of
// the expert's weights (the output features).
#include "kernels/experts/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_turned(const GroupedGemmArgs& args, const GemmConfig& config,
                                  int sm_count, cudaStream_t stream) {
  using Tile = GroupedTurnedTile<128, 256>;
  GemmProblem p{};
  if (!describe_grouped<Tile>(p, args, config, args.k, args.n)) return map_refused();
  p.weight_rows = static_cast<int>(args.n);
  if (!encode_bf16_matrix(&p.b, args.w, args.rows.experts * args.n, args.k, args.k, kBoxK)) {
    return map_refused();
  }
  return start_variant<Tile>(p, config, sm_count, stream, StoreProduct{});
}

}  // namespace slimexx::kernels
