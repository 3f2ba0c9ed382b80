// Tests experts split over ranks, whole or in parts: the block gives the bits and gradients of one
// rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/float_vectors.h"
#include "model/random_model.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::model {
namespace {

constexpr double kRounding = 1e-5;  // sums of f32 in another order

std::vector<float> random_values(int64_t count, float scale, uint64_t seed) {
  PhiloxStream random(seed, 8);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = scale * static_cast<float>(random.next_normal());
  return values;
}

// The block's parameters, or their gradients.
struct ExpertValues {
  std::vector<float> router, bias, gate_up, down, shared_up, shared_down;
};

struct Problem {
  MoeMlpSpec spec;
  ExpertValues weights;
  std::vector<int64_t> num_tokens;  // by rank
  int cp = 1;                  // if above 1, ranks plan for their own tokens and know all counts
  std::vector<float> x, dout;  // [sum of num_tokens, H]
};

// Three of eight experts per token, because two terms sum to the same bits in any order. If `loved`
// is set, every token goes to the experts in it.
Problem make_problem(const std::vector<int64_t>& num_tokens, const std::vector<size_t>& loved,
                     int64_t hidden_size = 24) {
  Problem p;
  p.spec = random_experts("glm4_moe", {.hidden_size = hidden_size, .intermediate_size = 32});
  p.spec.router.top_k = loved.empty() ? 3 : std::ssize(loved);
  const int64_t h = p.spec.hidden_size, f = p.spec.intermediate_size, e = 8;
  p.weights = {.router = random_values(e * h, 0.3f, 1),
               .bias = random_values(e, 0.1f, 2),
               .gate_up = random_values(e * 2 * f * h, 0.3f, 3),
               .down = random_values(e * h * f, 0.3f, 4),
               .shared_up = random_values(2 * f * h, 0.3f, 5),
               .shared_down = random_values(h * f, 0.3f, 6)};
  for (const size_t expert : loved) p.weights.bias[expert] += 100;
  p.num_tokens = num_tokens;
  const int64_t tokens = std::accumulate(num_tokens.begin(), num_tokens.end(), int64_t{0});
  p.x = random_values(tokens * h, 1, 7);
  p.dout = random_values(tokens * h, 1, 8);
  return p;
}

struct ExpertOutcome {
  std::vector<float> down, dnormed;  // for all tokens
  ExpertValues gradients;            // summed over ranks
  double used_of_plan = 0;           // maximum over ranks of used / planned bytes
  bool met_plan() const { return used_of_plan == 1; }
};

// The elements of all experts' matrices that a rank holds: its share of each section of rows (gate
// and up are two) for each of its copies.
std::vector<dist::Range> list_held(const MoeMlpSpec& s, const dist::GridPosition& at,
                                   int64_t elements, int64_t sections) {
  const dist::Range held = s.placement().held_by(at.ep);
  const int64_t share = elements / sections / s.etp_ranks;
  std::vector<dist::Range> ranges;
  for (int64_t copy = held.begin; copy < held.end; ++copy)
    for (int64_t section = 0; section < sections; ++section) {
      const int64_t begin =
          s.placement().expert_of(copy) * elements + section * elements / sections + at.etp * share;
      ranges.push_back({begin, begin + share});
    }
  return ranges;
}

std::vector<float> take_held(const MoeMlpSpec& s, const dist::GridPosition& at,
                             const std::vector<float>& all, int64_t sections) {
  std::vector<float> own;
  for (const dist::Range& r : list_held(s, at, std::ssize(all) / s.router.num_experts, sections))
    own.insert(own.end(), all.begin() + r.begin, all.begin() + r.end);
  return own;
}

void add_held(const MoeMlpSpec& s, const dist::GridPosition& at, const std::vector<float>& own,
              std::vector<float>& all, int64_t sections) {
  size_t i = 0;
  for (const dist::Range& r : list_held(s, at, std::ssize(all) / s.router.num_experts, sections))
    for (int64_t e = r.begin; e < r.end; ++e) all[static_cast<size_t>(e)] += own[i++];
}

MoeMlpParameters<Tensor> bind(const MoeMlpSpec& s, ExpertValues& v, int64_t local) {
  const int64_t h = s.hidden_size, f = s.intermediate_size;
  const auto view = [](std::vector<float>& values, std::initializer_list<int64_t> shape) {
    return Tensor(values.data(), tensor::DType::kF32, {}, shape);
  };
  return {.router_weight = view(v.router, {s.router.num_experts, h}),
          .correction_bias = view(v.bias, {s.router.num_experts}),
          .gate_up = {view(v.gate_up, {local, 2 * f / s.etp_ranks, h})},
          .down = {view(v.down, {local, h / s.etp_ranks, f})},
          .shared = {.gate_up = {view(v.shared_up, {2 * f, h})},
                     .down = {view(v.shared_down, {h, f})}}};
}

// Forward and backward as in a layer. There is no backward with redundant experts.
void run_block(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
               const MoeMlpParameters<Tensor>& g, LayerKeep level, Tensor x, Tensor dout,
               Tensor down, Tensor dnormed) {
  const int64_t tokens = x.dim(0);
  const Batch batch = {};
  MoeMlpTape kept;
  allocate_kept(ctx.arena, spec, tokens, level, kept);
  {
    const tensor::ArenaScope scope(ctx.arena);
    MoeMlpTape tape = kept;
    allocate_rest(ctx.arena, spec, tokens, false, tape);
    project_up(ctx, spec, w, batch, tape, x);
    project_down(ctx, spec, w, batch, tape, down);
  }
  if (spec.placement().has_redundant()) return;
  const bool has_up = keeps_up(kept);
  allocate_rest(ctx.arena, spec, tokens, true, kept);
  if (!has_up) project_up(ctx, spec, w, batch, kept, x);
  backward(ctx, spec, w, g, batch, kept, dout, x, dnormed, false);
}

// Runs in an arena as large as the plan for the largest rank.
void run_rank(const Problem& p, const dist::ProcessGrid& grid, LayerKeep level, std::mutex& mutex,
              ExpertOutcome& outcome) {
  const int rank = grid.groups().world.rank();
  const MoeMlpSpec spec = narrow(p.spec, grid.shape().sizes());
  const int64_t h = spec.hidden_size, own = p.num_tokens[static_cast<size_t>(rank)];
  const int64_t first =
      std::accumulate(p.num_tokens.begin(), p.num_tokens.begin() + rank, int64_t{0});
  const dist::GridPosition at = grid.shape().position(rank);
  ExpertValues weights = p.weights;
  weights.gate_up = take_held(spec, at, p.weights.gate_up, 2);
  weights.down = take_held(spec, at, p.weights.down, 1);
  ExpertValues gradients = weights;
  for (auto* v : {&gradients.router, &gradients.bias, &gradients.gate_up, &gradients.down,
                  &gradients.shared_up, &gradients.shared_down})
    std::ranges::fill(*v, 0.0f);
  const auto rows = [&](const std::vector<float>& values) {
    return std::vector<float>(values.begin() + first * h, values.begin() + (first + own) * h);
  };
  std::vector<float> x = rows(p.x), dout = rows(p.dout), down(x.size()), dnormed(x.size());
  const int64_t local = spec.placement().held_by(at.ep).size();
  const auto w = bind(spec, weights, local), g = bind(spec, gradients, local);

  tensor::Arena plan = tensor::Arena::for_planning({}, "plan");
  const int64_t most = p.cp > 1 ? own : std::ranges::max(p.num_tokens);
  const int64_t all =
      p.cp > 1 ? std::accumulate(p.num_tokens.begin(), p.num_tokens.end(), int64_t{0}) : 0;
  const Tensor planned(nullptr, tensor::DType::kF32, {}, {most, h});
  run_block(ops::planning_context(plan, grid.groups(), all), spec, w, g, level, planned, planned,
            planned, planned);
  tensor::Arena arena({}, plan.high_water_bytes(), "block");
  const auto view = [&](std::vector<float>& values) {
    return Tensor(values.data(), tensor::DType::kF32, {}, {own, h});
  };
  run_block(ops::compute_context(arena, grid.groups()), spec, w, g, level, view(x), view(dout),
            view(down), view(dnormed));

  const std::lock_guard lock(mutex);
  std::ranges::copy(down, outcome.down.begin() + first * h);
  std::ranges::copy(dnormed, outcome.dnormed.begin() + first * h);
  const auto add = [&](std::vector<float> ExpertValues::*field) {
    auto& sum = outcome.gradients.*field;
    sum.resize((gradients.*field).size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (gradients.*field)[i];
  };
  for (auto field : {&ExpertValues::router, &ExpertValues::shared_up, &ExpertValues::shared_down})
    add(field);
  outcome.gradients.gate_up.resize(p.weights.gate_up.size());
  outcome.gradients.down.resize(p.weights.down.size());
  add_held(spec, at, gradients.gate_up, outcome.gradients.gate_up, 2);
  add_held(spec, at, gradients.down, outcome.gradients.down, 1);
  outcome.used_of_plan =
      std::max(outcome.used_of_plan, static_cast<double>(arena.high_water_bytes()) /
                                         static_cast<double>(plan.high_water_bytes()));
}

ExpertOutcome run(const Problem& p, const dist::GridSizes& sizes, LayerKeep level) {
  ExpertOutcome outcome;
  outcome.down.resize(p.x.size());
  outcome.dnormed.resize(p.x.size());
  std::mutex mutex;
  dist::run_thread_ranks(static_cast<int>(p.num_tokens.size()), [&](dist::Collective& host) {
    const dist::ProcessGrid grid(host, sizes, {});
    run_rank(p, grid, level, mutex, outcome);
  });
  return outcome;
}

// `ep` ranks split the set of experts, `etp` ranks split each expert; with etp > 1 token gradients
// are sums over ranks.
void expect_one_ranks_results(const Problem& p, int ep, int etp = 1) {
  Problem alone = p;
  alone.spec.expert_copies = 0;
  alone.cp = 1;
  alone.num_tokens = {std::accumulate(p.num_tokens.begin(), p.num_tokens.end(), int64_t{0})};
  const ExpertOutcome expected = run(alone, {}, LayerKeep::kAll);
  for (const LayerKeep level : {LayerKeep::kAll, LayerKeep::kInputs}) {
    SCOPED_TRACE("ep " + std::to_string(ep) + " etp " + std::to_string(etp) + " of " +
                 std::to_string(p.num_tokens.size()) + " ranks, level " +
                 std::to_string(static_cast<int>(level)));
    const ExpertOutcome actual = run(p, {.cp = p.cp, .ep = ep, .etp = etp}, level);
    EXPECT_EQ(first_difference(actual.down, expected.down), "") << "down";
    if (p.spec.expert_copies > p.spec.router.num_experts) continue;
    if (etp == 1) {
      EXPECT_EQ(first_difference(actual.dnormed, expected.dnormed), "") << "dnormed";
    } else {
      EXPECT_LT(relative_distance(actual.dnormed, expected.dnormed), 1e-6) << "dnormed";
    }
    const auto near = [&](std::vector<float> ExpertValues::*field, const char* name) {
      EXPECT_LT(relative_distance(actual.gradients.*field, expected.gradients.*field), kRounding)
          << "gradient of " << name;
    };
    near(&ExpertValues::router, "router");
    near(&ExpertValues::gate_up, "gate_up");
    near(&ExpertValues::down, "down");
    near(&ExpertValues::shared_up, "shared gate_up");
    near(&ExpertValues::shared_down, "shared down");
  }
}

// Random counts: some ranks have many tokens, some none.
std::vector<int64_t> uneven_tokens(int num_ranks, uint64_t seed) {
  PhiloxStream random(seed, 9);
  std::vector<int64_t> tokens;
  for (int r = 0; r < num_ranks; ++r)
    tokens.push_back(random.next_below(3) == 0 ? 0
                                               : static_cast<int64_t>(1 + random.next_below(30)));
  tokens[0] = 17;
  return tokens;
}

TEST(ExpertParallel, UnevenTokensGiveOneRanksResults) {
  for (const int ranks : {2, 4, 8})
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      expect_one_ranks_results(make_problem(uneven_tokens(ranks, seed), {}), ranks);
    }
}

// Two independent groups of ranks.
TEST(ExpertParallel, GroupsOfRanksAreApart) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_one_ranks_results(make_problem(uneven_tokens(8, seed), {}), 2);
  }
}

// The plan has room for exactly the largest number of rows that can arrive.
TEST(ExpertParallel, AllTokensGoToOneRank) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<int64_t> tokens(static_cast<size_t>(ranks), 19);
    for (const std::vector<size_t>& loved : {std::vector<size_t>{3}, std::vector<size_t>{4, 5}}) {
      const Problem p = make_problem(tokens, loved);
      expect_one_ranks_results(p, ranks);
      EXPECT_TRUE(run(p, {.ep = ranks}, LayerKeep::kAll).met_plan());
    }
  }
}

TEST(ExpertParallel, OneRankHasAllTokens) {
  for (const int ranks : {2, 4, 8}) {
    std::vector<int64_t> tokens(static_cast<size_t>(ranks), 0);
    tokens.back() = 23;
    expect_one_ranks_results(make_problem(tokens, {}), ranks);
  }
}

// Eight experts on 3, 5 and 6 ranks, placed as in engines, with redundant copies of some or all.
TEST(ExpertParallel, CopiesThatDoNotDivideByRanksGiveOneRanksResults) {
  for (const int ranks : {3, 5, 6})
    for (const int64_t copies : {8, 9, 11, 16, 17})
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        SCOPED_TRACE(std::to_string(copies) + " copies, seed " + std::to_string(seed));
        Problem p = make_problem(uneven_tokens(ranks, seed), {});
        p.spec.expert_copies = copies;
        expect_one_ranks_results(p, ranks);
      }
}

// Every rank plans for the rank with the most experts, so that all have the same memory left.
TEST(ExpertParallel, AllTokensGoToTheTwoCopiesOfAnExpert) {
  Problem p = make_problem({19, 19, 19}, {0, 1});
  p.spec.expert_copies = 10;  // ranks hold 0 to 3, 4 to 6, and 7, 0, 1
  expect_one_ranks_results(p, 3);
  const std::vector<int32_t> second = ExpertPlacement{8, 10, 3}.copies_for(1);
  EXPECT_EQ((std::vector<int32_t>{second[0], second[1]}), (std::vector<int32_t>{8, 9}));
  p.spec.expert_copies = 8;  // without redundancy one rank gets all rows
  expect_one_ranks_results(p, 3);
  EXPECT_TRUE(run(p, {.ep = 3}, LayerKeep::kAll).met_plan());
}

TEST(ExpertParallel, NobodyHasTokens) {
  expect_one_ranks_results(make_problem({0, 0}, {}), 2);
  expect_one_ranks_results(make_problem({0, 0, 0, 0}, {}), 2, 2);
}

// The ETP ranks of an expert have different tokens; some have none.
TEST(ExpertParallel, RanksOfAnExpertGiveOneRanksResults) {
  struct Grid {
    int ranks, ep, etp;
  };
  for (const Grid& g : {Grid{2, 1, 2}, Grid{4, 1, 4}, Grid{4, 2, 2}, Grid{8, 4, 2}, Grid{8, 2, 4},
                        Grid{8, 1, 8}, Grid{8, 2, 2}, Grid{4, 1, 2}})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      expect_one_ranks_results(make_problem(uneven_tokens(g.ranks, seed), {}), g.ep, g.etp);
    }
}

// The plan covers the rows of all ranks of an expert. The largest buffers are expert columns in one
// case, whole rows in the other.
TEST(ExpertParallel, AllTokensGoToTheRanksOfAnExpert) {
  for (const int64_t hidden_size : {24, 64}) {
    SCOPED_TRACE(hidden_size);
    const Problem p = make_problem(std::vector<int64_t>(8, 19), {4, 5}, hidden_size);
    expect_one_ranks_results(p, 4, 2);
    expect_one_ranks_results(p, 2, 4);
    EXPECT_GT(run(p, {.ep = 4, .etp = 2}, LayerKeep::kAll).used_of_plan, 0.97);
  }
}

// With context parallelism one rank of each ETP group has most tokens, and all tokens go to one
// expert.
TEST(ExpertParallel, RanksOfAnExpertHaveRoomForUnevenParts) {
  Problem p = make_problem({30, 4, 30, 4, 30, 4, 16, 4}, {6, 7}, 64);
  p.cp = 2;
  expect_one_ranks_results(p, 4, 2);
}

TEST(ExpertParallel, OneRankOfAnExpertHasAllTokens) {
  for (const size_t rank : {0, 3}) {
    std::vector<int64_t> tokens(4, 0);
    tokens[rank] = 23;
    expect_one_ranks_results(make_problem(tokens, {}), 2, 2);
    expect_one_ranks_results(make_problem(tokens, {}), 1, 4);
  }
}

TEST(ExpertParallel, ARefusalNamesTheKeyAndTheEquation) {
  const MoeMlpSpec spec = random_experts("glm4_moe", {.hidden_size = 24, .intermediate_size = 32});
  const auto expect_refused = [&](const dist::GridSizes& sizes, const std::string& key,
                                  const std::string& message, const std::string& hint) {
    try {
      narrow(spec, sizes);
      ADD_FAILURE() << "not refused: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_EQ(error.where(), key);
      EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
      EXPECT_EQ(error.hint(), hint);
    }
  };
  const std::string by_rank = "parallel.expert_model_parallel_size";
  expect_refused({.ep = 3}, by_rank, "8 experts are not divisible by 3 ranks: 8 % 3 = 2",
                 "set it to 2 or 4");
  expect_refused({.ep = 16}, by_rank, "8 experts are not divisible by 16 ranks: 8 % 16 = 8",
                 "set it to 8");
  const std::string of_expert = "parallel.expert_tensor_parallel_size";
  expect_refused({.etp = 3}, of_expert,
                 "the 16 columns of an expert are not divisible by 3 ranks: 16 % 3 = 1",
                 "set it to 2 or 4");
  expect_refused({.etp = 16}, of_expert,
                 "the 24 columns of an expert's output are not divisible by 16 ranks: 24 % 16 = 8",
                 "set it to 8");
}

}  // namespace
}  // namespace slimexx::model
