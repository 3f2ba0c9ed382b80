#include "rl/config/fp8_keys.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace slimexx::rl {
namespace {

constexpr const char* kFp8Key = "numerics.fp8";
constexpr const char* kOneForward = "one FP8 forward is computed: blockwise e4m3; backward is bf16";

}  // namespace

void bind_fp8(config::Binder& b, NumericsOptions& o) {
  b.field("fp8", o.fp8,
          {.doc = "Compute the projections of attention, MLPs and experts in FP8 (e4m3, blocks of "
                  "128x128), in generation and in every forward of training; backward and the "
                  "optimizer stay as they are. On: the weights are quantised after each update. "
                  "Off: FP8 folders are dequantised on load. Auto: on if model.hf_checkpoint has "
                  "FP8 weights in such blocks. Rollout_only: only engines compute in FP8, and "
                  "rl.use_tis corrects for the difference of the log-probs.",
           .choices = {"auto", "off", "on", "rollout_only"},
           .slime = "-"});
  b.field("fp8_scale_fmt", o.fp8_scale_fmt,
          {.doc = "Scales of FP8 weights. ue8m0: powers of two, so that quantising twice changes "
                  "nothing and dequantised weights are exact in bf16. float: largest magnitude / "
                  "448, as slime's conversion. auto: that of the folder, ue8m0 if it is not FP8.",
           .choices = {"auto", "ue8m0", "float"},
           .slime = "-",
           .may_idle = true});
  b.field("fp8_format", o.fp8_format,
          {.doc = "Megatron's flag: e4m3 sets numerics.fp8 to on.",
           .choices = {"none", "e4m3"},
           .refused_choices = {{"hybrid", kOneForward}}});
  b.field("fp8_recipe", o.fp8_recipe,
          {.doc = "Megatron's flag: blockwise sets numerics.fp8 to on.",
           .choices = {"none", "blockwise"},
           .refused_choices = {
               {"delayed", kOneForward}, {"tensorwise", kOneForward}, {"mxfp8", kOneForward}}});
}

void bind_quantization(config::Binder& b, RolloutOptions& o) {
  b.field("quantization", o.quantization,
          {.doc = "SGLang's flag: fp8 sets numerics.fp8 to on, so that a bf16 folder is quantised "
                  "when the run starts.",
           .choices = {"none", "fp8"}});
}

void settle_fp8(config::Config& config, RunConfig& run) {
  struct Flag {
    const char* key;
    std::string_view value;
    bool is_of_engines = false;
  };
  std::string& mode = run.numerics.fp8;
  for (const Flag& flag : {Flag{"numerics.fp8_format", run.numerics.fp8_format},
                           Flag{"numerics.fp8_recipe", run.numerics.fp8_recipe},
                           Flag{"rollout.quantization", run.rollout.quantization, true}}) {
    if (flag.value == "none") continue;
    if (mode == "off" || (mode == "rollout_only" && !flag.is_of_engines))
      config.add_fault(flag.key, fmt::format("is {}, and {} is {}", flag.value, kFp8Key, mode),
                       "keep one");
    if (mode == "auto") mode = "on";
  }
}

void check_rollout_only(config::Config& config, const RunConfig& run) {
  if (run.numerics.fp8 != "rollout_only") return;
  if (run.is_sft() && !needs_engine(run))
    config.add_fault(kFp8Key, "is rollout_only, but the run generates nothing", "leave it out");
  if (!generates_samples(run)) return;
  const std::string why =
      "with rollout_only the log-probs of engines and training differ; numerics.fp8: on has no "
      "difference";
  if (run.numerics.on_logprob_mismatch == "fail")
    config.add_fault(kFp8Key, "is rollout_only, and numerics.on_logprob_mismatch is fail",
                     "set on_logprob_mismatch to warn or ignore: " + why);
  if (!run.rl.use_tis)
    config.add_fault(kFp8Key, "is rollout_only, and rl.use_tis is false",
                     "set rl.use_tis to true: " + why);
}

}  // namespace slimexx::rl
