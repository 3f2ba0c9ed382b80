// What a checkpoint and the run that continues it must have in common, and what is said of the
// rest.
#pragma once
#include <string>

#include "slimexx/rl/run_start.h"

namespace slimexx::rl {

// Throws Error(kUsage) naming file and key if config.json or tokenizer.json of `hf_checkpoint` say
// other things than the copies in the checkpoint: the state would go on with another model or other
// tokens. Spelling and order of keys do not count, nor do keys that no model looks at.
void check_same_model(const std::string& checkpoint, const std::string& hf_checkpoint);

// Where two files config.json say different models, beside their quantisation; empty: nowhere.
std::string find_config_difference(const std::string& earlier, const std::string& now);

// The configuration of the run that wrote the checkpoint; empty if it is nowhere to be found.
std::string find_earlier_settings(const RunStart& start);

// Lists in the log what differs from `earlier`. Throws Error(kUsage) for a setting with which the
// state cannot be continued. `takes_reference`: the run goes on with the checkpoint's reference.
void compare_settings(const std::string& earlier, const std::string& now,
                      bool takes_reference = false);

// Writes config.resolved.yaml of the run folder; one that is there and differs is kept as
// config.resolved.1.yaml, ...2.yaml.
void write_settings(const std::string& run_dir, const std::string& resolved_yaml);

// Moves metrics.jsonl and train_steps.jsonl away as metrics.1.jsonl, ...2.jsonl: see
// RunStart::sets_rows_aside.
void set_rows_aside(const std::string& run_dir);

}  // namespace slimexx::rl
