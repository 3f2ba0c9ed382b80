#include <nlohmann/json.hpp>

#include "slimexx/rl/plan.h"

namespace slimexx::rl {
namespace {

Json stage_to_json(const PlannedStage& stage) {
  Json memory = Json::object(), chunks = Json::array(), links = Json::array();
  for (const auto& [name, bytes] : stage.memory) memory[name] = bytes;
  for (const model::StageRange& chunk : stage.chunks)
    chunks.push_back({{"first_layer", chunk.first_layer},
                      {"end_layer", chunk.end_layer},
                      {"has_embedding", chunk.has_embedding},
                      {"has_head", chunk.has_head}});
  for (const PlannedLink& link : stage.links)
    links.push_back({{"what", link.what},
                     {"ranks", link.num_ranks},
                     {"crosses_hosts", link.crosses_hosts},
                     {"bytes", link.bytes},
                     {"seconds", link.seconds}});
  return {{"first_rank", stage.first_rank},
          {"ranks", stage.num_ranks},
          {"chunks", chunks},
          {"parameters", stage.num_parameters},
          {"memory", memory},
          {"engine_weights", stage.engine_bytes},
          {"fp8_weights", stage.fp8_bytes},
          {"used", stage.used_bytes},
          {"training", stage.training_bytes},
          {"limit", stage.limit_bytes},
          {"needed_pool", stage.needed_pool_bytes},
          {"missing", stage.missing_bytes},
          {"turn", stage.turn},
          {"pool", stage.pool_bytes},
          {"cache", stage.cache_bytes},
          {"cache_tokens", stage.cache_tokens},
          {"activations_least", stage.activations.least},
          {"activations_most", stage.activations.most},
          {"microbatches_in_flight", stage.activations.in_flight},
          {"activations_kept", stage.activations.kept},
          {"activations_scratch", stage.activations.scratch},
          {"microbatches_deferred", stage.activations.num_deferred},
          {"activations_deferred", stage.activations.deferred},
          {"logits", stage.logits_bytes},
          {"host_optimizer_state", stage.host_bytes},
          {"host_reference", stage.reference_bytes},
          {"checkpoint_copy", stage.snapshot_bytes},
          {"kept", stage.kept},
          {"flops_per_microbatch", stage.flops},
          {"links", links}};
}

}  // namespace

Json plan_to_json(const RunPlan& plan) {
  const dist::GridSizes& s = plan.grid.sizes();
  const PlannedLengths& l = plan.lengths;
  Json stages = Json::array(), phases = Json::array();
  for (const PlannedStage& stage : plan.stages) stages.push_back(stage_to_json(stage));
  for (const PlannedPhase& phase : plan.phases)
    phases.push_back({{"name", phase.name}, {"seconds", phase.seconds}, {"how", phase.how}});
  return {{"gpu", plan.gpu.name},
          {"is_measured", plan.gpu.is_measured},
          {"ranks", plan.roles.world_size()},
          {"trainers", plan.roles.num_trainers},
          {"generators", plan.roles.num_generators},
          {"apart", plan.roles.are_apart},
          {"grid",
           {{"tp", s.tp},
            {"cp", s.cp},
            {"dp", plan.grid.size(dist::GridAxis::kDp)},
            {"pp", s.pp},
            {"ep", s.ep},
            {"etp", s.etp},
            {"edp", plan.grid.size(dist::GridAxis::kEdp)}}},
          {"engines",
           {{"engines", plan.engines.num_engines},
            {"ranks", plan.engines.num_ranks},
            {"tp", plan.engines.sizes.tp},
            {"ep", plan.engines.sizes.ep},
            {"redundant_experts", plan.engines.redundant_experts}}},
          {"parameters", plan.total_parameters},
          {"lengths",
           {{"prompts_are_read", l.knows_prompts},
            {"longest_prompt", l.longest_prompt},
            {"mean_prompt", l.mean_prompt},
            {"mean_response", l.mean_response},
            {"longest_response", l.longest_response},
            {"longest_trained", l.longest_trained},
            {"max_positions", l.max_positions}}},
          {"steps_per_rollout", plan.num_steps},
          {"samples_per_step", plan.samples_per_step},
          {"samples_per_microbatch", plan.samples_per_microbatch},
          {"microbatches", plan.microbatches},
          {"handed_over", plan.handed_over_bytes},
          {"stages", stages},
          {"generator", plan.generator ? stage_to_json(*plan.generator) : Json()},
          {"phases", phases},
          {"seconds", plan.seconds()},
          {"notes", plan.notes},
          {"fits_with", plan.fits_with},
          {"fits", plan.fits()}};
}

}  // namespace slimexx::rl
