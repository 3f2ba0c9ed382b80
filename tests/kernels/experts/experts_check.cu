// Mixture of experts on the device: the router and its load balance, the sort of routed rows,
// products, sums, and SwiGLU's gradient. Compares values with the host's in double, and bits across
// runs, batches, and the plain products and row kernels that the contracts name.
//
//   experts_check [small | tiny]      for compute-sanitizer: check_size.h
#include <vector>

#include "tests/kernels/check_size.h"
#include "tests/kernels/experts/balance_checks.h"
#include "tests/kernels/experts/expert_products.cuh"
#include "tests/kernels/experts/router_checks.h"
#include "tests/kernels/experts/sum_checks.h"

namespace slimexx::kernels::testing {
namespace {

void check_routers(CheckSize size) {
  const bool tiny = size == CheckSize::kTiny;
  for (const RouterShape& shape : router_shapes()) {
    // For a few tokens one kernel routes and sorts; it is compiled for each number of experts per
    // lane.
    if (tiny && shape.experts != 7 && shape.experts != 256 && shape.experts != 384) continue;
    for (const bool has_bias : {false, true}) {
      check_router(RouterCase(shape, tiny ? 5 : 37, has_bias));
      for (const int64_t tokens : {1, 2, 16, 17}) {
        if (tiny && tokens != 2) continue;
        check_route_and_sort(RouterCase(shape, tokens, has_bias));
      }
    }
    check_ties(shape, tiny ? 3 : 40);
  }
  check_router(RouterCase(router_shapes()[0], 0, false));
  if (size == CheckSize::kAll) check_router(RouterCase(router_shapes()[1], 3000, true));
}

void check_orders(CheckSize size) {
  struct Sizes {
    int64_t tokens, experts, top_k;
  };
  // One thread block sorts up to 2,048 choices; more are sorted in runs.
  std::vector<Sizes> all = {{0, 4, 2}, {1, 8, 2}, {57, 9, 3}, {700, 384, 3}};
  if (size != CheckSize::kTiny)
    all.insert(all.end(), {{256, 128, 8}, {1500, 1, 1}, {2000, 160, 8}});
  if (size == CheckSize::kAll) all.insert(all.end(), {{8192, 64, 4}, {65536, 128, 8}});
  for (const Sizes& s : all) check_order(s.tokens, s.experts, s.top_k);
}

void check_balances(CheckSize size) {
  const bool tiny = size == CheckSize::kTiny;
  for (const RouterShape& shape : router_shapes()) {
    if (tiny && shape.experts != 7 && shape.experts != 256 && shape.experts != 384) continue;
    for (const RouterBalanceRule& rule :
         {RouterBalanceRule{0.5f, 0.25f, 3}, RouterBalanceRule{0, 0, 3}}) {
      const std::vector<int32_t> cu =
          tiny ? std::vector<int32_t>{0, 5, 6} : std::vector<int32_t>{0, 300, 300, 303, 520};
      check_balance(BalanceCase(shape, cu, rule));
    }
  }
  if (size == CheckSize::kAll)
    check_balance(BalanceCase(router_shapes()[1], {0, 2090, 2093, 3170}, {0.5f, 0.25f, 3}));
  for (const int64_t experts : {1, 10, 384}) check_bias(experts);
}

// Swapped tiles of 32 and 64 rows, and plain tiles of 128, 192 and 256 columns; experts with no
// rows, one tile and several tiles; sizes that are not multiples of a tile.
void check_all_products(CheckSize size) {
  using enum Spread;
  // More experts than clusters of the weight gradient, so that some clusters take two tiles.
  std::vector<GroupedCase> all = {
      {"swapped 32", 10, 8, 64, 64, kRagged, 1},   {"swapped 64", 60, 2, 72, 64, kRandom, 2},
      {"plain 128", 150, 2, 128, 64, kRandom, 2},  {"plain 192", 130, 2, 192, 64, kRandom, 2},
      {"plain 256", 150, 2, 256, 128, kRandom, 2}, {"many experts", 100, 70, 64, 64, kRandom, 2},
      {"no rows", 0, 4, 64, 64, kEven, 3}};
  if (size != CheckSize::kTiny) {
    all.insert(all.end(), {{"swapped 32", 160, 16, 72, 136, kRagged, 4},
                           {"swapped 64", 600, 16, 96, 64, kRandom, 5},
                           {"plain 192", 400, 4, 192, 128, kRagged, 6},
                           {"plain 256", 300, 3, 256, 200, kEven, 7},
                           {"one row", 1, 3, 40, 24, kEven, 8}});
  }
  if (size == CheckSize::kAll) {
    all.insert(all.end(), {{"plain 128", 2100, 9, 264, 200, kRagged, 9},
                           {"plain 256", 1800, 6, 1536, 512, kRandom, 10},
                           {"plain 192", 2000, 4, 384, 1032, kRagged, 11},
                           {"swapped 32", 1600, 128, 128, 256, kRandom, 12},
                           {"swapped 64", 6000, 128, 520, 328, kRandom, 13}});
  }
  for (const GroupedCase& c : all) check_products(c);
  check_one_token({"few features", 2, 8, 64, 64, kDistinct, 14});
  if (size == CheckSize::kTiny) return;
  check_one_token({"ragged", 4, 16, 72, 136, kDistinct, 15});
  check_one_token({"one expert", 1, 1, 64, 64, kDistinct, 16});
  if (size == CheckSize::kAll) check_one_token({"Qwen3", 8, 128, 1536, 2048, kDistinct, 17});
}

void check_all_sums(CheckSize size) {
  check_sums(SumCase(3, 8, 2, 64));
  check_sums(SumCase(0, 8, 2, 64));
  for (const auto& [rows, used] : {std::pair{70, 3}, {5, 0}, {3, 3}})
    check_swiglu_backward(SwigluCase(rows, used, 40));
  if (size == CheckSize::kTiny) return;
  check_sums(SumCase(37, 16, 4, 2048));
  check_sums(SumCase(5, 9, 3, 5120));
  check_sums(SumCase(130, 6, 5, 264));
  for (const auto& [rows, used] : {std::pair{300, 131}, {140, 131}, {131, 131}})
    check_swiglu_backward(SwigluCase(rows, used, 72));
  if (size != CheckSize::kAll) return;
  check_sums(SumCase(60, 32, 32, 16384));
  check_swiglu_backward(SwigluCase(3000, 2500, 1536));
}

int run(CheckSize size) {
  check_routers(size);
  check_orders(size);
  check_balances(size);
  check_all_products(size);
  check_all_sums(size);
  return finish_checks("experts_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
