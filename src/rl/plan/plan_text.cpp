// Formats a plan as text for one or two screens.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rl/training/run_summary.h"
#include "slimexx/base/strings.h"
#include "slimexx/model/describe.h"
#include "slimexx/observe/console.h"
#include "slimexx/rl/fp8_choice.h"
#include "slimexx/rl/plan.h"

namespace slimexx::rl {
namespace {

using dist::GridAxis;

std::string bytes_text(double bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }
std::string bytes_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", 1e3 * seconds) : format_duration(seconds);
}

constexpr int64_t kUncut = 1 << 20;  // width of columns that explain a number: never cut

// "1 rank", "2 ranks"
std::string count_of(int64_t count, const std::string& what) {
  const char* plural = count == 1 ? "" : what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, plural);
}

std::string layers_of(const PlannedStage& stage) {
  std::string text;
  for (const model::StageRange& chunk : stage.chunks) {
    if (!text.empty()) text += ", ";
    if (chunk.has_embedding) text += "embedding, ";
    text += fmt::format("{} to {}", chunk.first_layer, chunk.end_layer - 1);
    if (chunk.has_head) text += ", head";
  }
  return text;
}

// The ranks of the first stage, with one row of coordinates per axis that has several ranks; at
// most kMostColumns ranks.
std::string draw_grid(const RunPlan& plan) {
  const dist::GridShape& grid = plan.grid;
  const dist::GridSizes& s = grid.sizes();
  std::string text = fmt::format(
      "grid       {} = tp {} x cp {} x dp {} x pp {}; experts etp {} x ep {} x edp {} x pp "
      "{}\n",
      count_of(grid.world_size(), "rank"), s.tp, s.cp, grid.size(GridAxis::kDp), s.pp, s.etp, s.ep,
      grid.size(GridAxis::kEdp), s.pp);
  if (grid.world_size() == 1) return text;
  constexpr int kMostColumns = 16;
  const int in_stage = grid.world_size() / s.pp, shown = std::min(in_stage, kMostColumns);
  const auto row = [&](const char* name, auto value_of) {
    text += fmt::format("           {:<5}", name);
    for (int rank = 0; rank < shown; ++rank) text += fmt::format("{:>4}", value_of(rank));
    text += shown < in_stage ? " ..\n" : "\n";
  };
  row("rank", [](int rank) { return rank; });
  const std::pair<const char*, GridAxis> axes[] = {{"tp", GridAxis::kTp}, {"cp", GridAxis::kCp},
                                                   {"dp", GridAxis::kDp}, {"etp", GridAxis::kEtp},
                                                   {"ep", GridAxis::kEp}, {"edp", GridAxis::kEdp}};
  const bool has_experts = count_experts(plan.spec) > 0;
  for (const auto& [name, axis] : axes)
    if (grid.size(axis) > 1 && (axis != GridAxis::kEtp || has_experts))
      row(name, [&, along = axis](int rank) { return grid.coordinate(along, rank); });
  if (s.pp > 1)
    text += fmt::format(
        "           the other stages have the same layout, each shifted by {} ranks\n", in_stage);
  return text;
}

std::string experts_of(const dist::GridSizes& sizes, int64_t experts) {
  return fmt::format("{} of {}{}", experts / sizes.ep, experts,
                     sizes.etp > 1 ? fmt::format(", 1/{} of each", sizes.etp) : std::string());
}

std::string stages_table(const RunPlan& plan) {
  const int64_t experts = count_experts(plan.spec);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    rows.push_back(
        {fmt::format("{}", i),
         fmt::format("{} to {}", stage.first_rank, stage.first_rank + stage.num_ranks - 1),
         layers_of(stage), experts > 0 ? experts_of(plan.grid.sizes(), experts) : "-",
         format_count(static_cast<double>(stage.num_parameters))});
  }
  return observe::format_table({{.header = "stage"},
                                {.header = "ranks"},
                                {.header = "layers"},
                                {.header = "experts per rank"},
                                {.header = "parameters per rank", .right_align = true}},
                               rows);
}

// One column per stage; neighbours with the same memory share a column.
std::string stage_memory_table(const RunPlan& plan) {
  std::vector<const PlannedStage*> columns;
  std::vector<observe::TableColumn> headers{{.header = "memory per rank"}};
  for (size_t i = 0; i < plan.stages.size();) {
    size_t end = i + 1;
    while (end < plan.stages.size() && plan.stages[end].used_bytes == plan.stages[i].used_bytes &&
           plan.stages[end].activations.most == plan.stages[i].activations.most)
      ++end;
    columns.push_back(&plan.stages[i]);
    headers.push_back({.header = end == i + 1 ? fmt::format("stage {}", i)
                                              : fmt::format("stages {} to {}", i, end - 1),
                       .right_align = true});
    i = end;
  }
  if (plan.generator) {
    columns.push_back(&*plan.generator);
    headers.push_back({.header = "generates", .right_align = true});
  }
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, auto value_of) {
    std::vector<std::string> row{name};
    bool has_value = false;
    for (const PlannedStage* stage : columns) {
      row.push_back(value_of(*stage));
      has_value = has_value || row.back() != "-";
    }
    if (has_value) rows.push_back(std::move(row));
  };
  std::vector<std::string> names;  // in the order of the first stage that has them
  for (const PlannedStage* stage : columns)
    for (const auto& named : stage->memory)
      if (std::ranges::find(names, named.what_for) == names.end()) names.push_back(named.what_for);
  for (const std::string& name : names) {
    add(name, [&](const PlannedStage& stage) {
      const auto found = std::ranges::find(stage.memory, name, &tensor::NamedBytes::what_for);
      return found == stage.memory.end() ? "-" : bytes_text(found->bytes);
    });
    if (name != "weights") continue;
    add("  of that, the engine's own", [](const auto& s) { return bytes_text(s.engine_bytes); });
    add("  of that, FP8", [](const auto& s) { return bytes_text(s.fp8_bytes); });
  }
  if (!plan.gpu.is_cpu())
    add("driver and libraries",
        [&](const auto&) { return bytes_text(plan.gpu.held_bytes(plan.roles.world_size())); });
  add("KV cache or activations, at least",
      [](const auto& s) { return bytes_text(s.needed_pool_bytes); });
  if (!plan.gpu.is_cpu()) {
    add("total", [](const auto& s) { return bytes_text(s.used_bytes); });
    add("  without driver and libraries", [&](const auto& s) {
      return bytes_text(s.used_bytes - plan.gpu.held_bytes(plan.roles.world_size()));
    });
    add("  training only, at least", [](const auto& s) { return bytes_text(s.training_bytes); });
    add("limit, without the hand-over", [](const auto& s) { return bytes_text(s.limit_bytes); });
  }
  add("KV cache, at most", [](const auto& s) { return bytes_text(s.cache_bytes); });
  add("  tokens", [](const auto& s) {
    return s.cache_tokens == 0 ? "-" : format_count(static_cast<double>(s.cache_tokens));
  });
  add("activations, at least", [](const auto& s) { return bytes_text(s.activations.least); });
  add("  microbatches in flight", [](const auto& s) {
    return s.activations.in_flight > 1 ? std::to_string(s.activations.in_flight) : "-";
  });
  const auto in_flight_text = [](const auto& s, int64_t bytes) {
    return bytes_text(s.activations.in_flight > 1 ? bytes : 0);
  };
  add("  kept for backward, per microbatch",
      [&](const auto& s) { return in_flight_text(s, s.activations.kept); });
  add("  workspace of an operation",
      [&](const auto& s) { return in_flight_text(s, s.activations.scratch); });
  add("  deferred weight gradients", [](const auto& s) {
    return s.activations.num_deferred > 0 ? std::to_string(s.activations.num_deferred) : "-";
  });
  add("  operands of each", [](const auto& s) { return bytes_text(s.activations.deferred); });
  add("activations, all kept", [](const auto& s) { return bytes_text(s.activations.most); });
  add("logits, at most", [](const auto& s) { return bytes_text(s.logits_bytes); });
  add("host: optimizer state", [](const auto& s) { return bytes_text(s.host_bytes); });
  add("host: reference", [](const auto& s) { return bytes_text(s.reference_bytes); });
  add("host: copy for a checkpoint", [](const auto& s) { return bytes_text(s.snapshot_bytes); });
  return observe::format_table(headers, rows);
}

std::string links_table(const RunPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedStage& stage : plan.stages)
    for (const PlannedLink& link : stage.links)
      if (std::ranges::find(names, link.what) == names.end()) names.push_back(link.what);
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : names) {
    const PlannedLink* most = nullptr;
    for (const PlannedStage& stage : plan.stages)
      for (const PlannedLink& link : stage.links)
        if (link.what == name && (most == nullptr || link.bytes > most->bytes)) most = &link;
    rows.push_back({name, fmt::format("{}", most->num_ranks),
                    most->crosses_hosts ? "between hosts" : "within a host",
                    bytes_text(most->bytes),
                    plan.gpu.is_cpu() ? "-" : seconds_text(most->seconds)});
  }
  if (plan.handed_over_bytes > 0)
    rows.push_back({"weight hand-over per rollout, at most",
                    fmt::format("{}", plan.roles.world_size()),
                    plan.roles.world_size() > 8 ? "between hosts" : "within a host",
                    bytes_text(plan.handed_over_bytes), "-"});
  if (rows.empty()) return "";
  return observe::format_table({{.header = "sent by a rank per optimizer step"},
                                {.header = "ranks", .right_align = true},
                                {.header = "over"},
                                {.header = "bytes", .right_align = true},
                                {.header = "time", .right_align = true}},
                               rows);
}

std::string phases_table(const RunPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const PlannedPhase& phase : plan.phases)
    rows.push_back({phase.name, seconds_text(phase.seconds), phase.how});
  if (rows.empty()) return "";
  rows.push_back({"total", seconds_text(plan.seconds()), ""});
  return observe::format_table({{.header = "time per rollout (estimate)"},
                                {.header = "", .right_align = true},
                                {.header = "how", .max_width = kUncut}},
                               rows);
}

std::string verdict(const RunPlan& plan) {
  if (plan.gpu.is_cpu()) return "OK         memory on the CPU is not limited\n";
  if (plan.fits()) return "OK         it fits\n";
  const PlannedStage& worst = plan.worst();
  const std::string who = plan.generator && &worst == &*plan.generator
                              ? "a generating rank"
                              : fmt::format("stage {}", &worst - plan.stages.data());
  std::string text =
      fmt::format("NO         {} does not fit by {}\n", who, bytes_text(worst.missing_bytes));
  for (const std::string& change : plan.fits_with)
    text += fmt::format("           {} {}\n",
                        &change == plan.fits_with.data() ? "fits with:" : "       or:", change);
  for (size_t begin = 0; begin < worst.turn.size();) {
    const size_t end = std::min(worst.turn.find("; ", begin), worst.turn.size());
    text += fmt::format("{}{}\n", begin == 0 ? "           change: " : "                   ",
                        worst.turn.substr(begin, end - begin));
    begin = end + 2;
  }
  return text;
}

}  // namespace

std::string format_plan(const RunPlan& plan, const RunConfig& config) {
  const PlannedLengths& l = plan.lengths;
  std::string text = fmt::format(
      "model      {} ({}), {} parameters, {} layers{}\n", config.model.hf_checkpoint,
      plan.spec.architecture, format_count(static_cast<double>(plan.total_parameters)),
      plan.spec.num_layers(),
      plan.spec.mtp.empty() ? ""
                            : fmt::format(" + {} multi-token prediction", plan.spec.mtp.size()));
  text += fmt::format("on         {} x {}{}\n", plan.roles.world_size(), plan.gpu.title,
                      plan.gpu.is_measured || plan.gpu.is_cpu()
                          ? ""
                          : "; memory and rates are estimates, scaled from an H200");
  if (plan.roles.are_apart)
    text += fmt::format("roles      ranks 0 to {} train, ranks {} to {} generate\n",
                        plan.roles.num_trainers - 1, plan.roles.num_trainers,
                        plan.roles.world_size() - 1);
  text += draw_grid(plan);
  text += fmt::format("engines    {} of {}: {}\n", plan.engines.num_engines,
                      count_of(plan.engines.num_ranks, "rank"), describe_engine(plan.engines));
  if (plan.spec.encoding != nullptr)
    text += fmt::format("FP8        {}\n", describe_fp8(plan.spec));
  if (plan.spec.fp8_cache) text += "KV cache   FP8\n";
  text += fmt::format("batch      {}\n", describe_batch(config));
  text += fmt::format(
      "           at {} + {} tokens (mean prompt and response): {} per microbatch, {} per "
      "replica\n",
      l.mean_prompt, l.mean_response, count_of(plan.samples_per_microbatch, "sample"),
      count_of(plan.microbatches, "microbatch"));
  text += fmt::format(
      "           longest sequence: {} tokens in training, {} positions in the model\n"
      "\n",
      l.longest_trained, l.max_positions);
  text += stages_table(plan) + "\n" + stage_memory_table(plan) + "\n";
  for (const std::string& table : {links_table(plan), phases_table(plan)})
    if (!table.empty()) text += table + "\n";
  for (const std::string& note : plan.notes) text += fmt::format("note       {}\n", note);
  text += verdict(plan);
  return text;
}

}  // namespace slimexx::rl
