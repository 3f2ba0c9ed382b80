// Checks that a checkpoint and the run that continues it agree where they must, and reports other
// differences.
#pragma once
#include <string>

#include "slimexx/io/checkpoint.h"
#include "slimexx/model/spec.h"
#include "slimexx/rl/run_start.h"

namespace slimexx::rl {

// Throws Error(kUsage) naming file and key if config.json or tokenizer.json of `hf_checkpoint`
// differs from the copy in the checkpoint: the state would continue with another model or other
// tokens. Formatting, the order of keys and keys that no model uses do not count.
void check_same_model(const std::string& checkpoint, const std::string& hf_checkpoint);

// Throws Error(kUsage) naming the key if the checkpoint's run computed other products in FP8, or
// with other scales, than the model `spec`.
void check_same_fp8(const io::Checkpoint& checkpoint, const model::ModelSpec& spec);

// The first difference between two config.json files, apart from quantization; empty: none.
std::string find_config_difference(const std::string& earlier, const std::string& now);

// The configuration of the run that wrote the checkpoint; empty if it is not found.
std::string find_earlier_settings(const RunStart& start);

// Logs the differences from `earlier`. Throws Error(kUsage) for a setting with which the state
// cannot be continued. `takes_reference`: the run continues with the checkpoint's reference.
void compare_settings(const std::string& earlier, const std::string& now,
                      bool takes_reference = false);

// Writes config.resolved.yaml of the run folder. An existing one that differs is renamed to
// config.resolved.1.yaml, ...2.yaml.
void write_settings(const std::string& run_dir, const std::string& resolved_yaml);

// Renames metrics.jsonl and train_steps.jsonl to metrics.1.jsonl, ...2.jsonl: see
// RunStart::sets_rows_aside.
void set_rows_aside(const std::string& run_dir);

}  // namespace slimexx::rl
