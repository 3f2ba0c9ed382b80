// Options with every kind of field, for the tests of config.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/config/config.h"

namespace slimexx::config {

struct TestOptions {
  int64_t num_rollout = 100;
  int64_t max_tokens = 4608;
  double lr = 1e-6;
  double clip = 0.2;
  bool shuffle = false;
  std::string rm_type = "math";
  std::string estimator = "grpo";
  std::optional<int64_t> actor_num_gpus;
  std::optional<double> clip_high;
  std::vector<int64_t> stop_ids;
  std::vector<std::string> stop;
  std::vector<std::pair<std::string, std::string>> eval_sets;
  std::string template_kwargs;

  bool operator==(const TestOptions&) const = default;
};

inline void bind_test_options(Binder& b, TestOptions& o) {
  b.begin_section("rollout", "What is generated.");
  b.field("num_rollout", o.num_rollout,
          {.unit = "rollouts", .doc = "How many rollouts.", .min = 1});
  b.field("rollout_stop", o.stop, {.doc = "Stop strings."});
  b.field("rollout_stop_token_ids", o.stop_ids, {.doc = "Stop tokens.", .min = 0});
  b.end_section();
  b.begin_section("data", "Prompts.");
  b.field("rollout_shuffle", o.shuffle, {.doc = "Shuffle the prompts."});
  b.json_field("apply_chat_template_kwargs", o.template_kwargs, {.doc = "Given to the template."});
  b.end_section();
  b.begin_section("rl", "The algorithm.");
  b.field("advantage_estimator", o.estimator,
          {.doc = "The estimator.", .choices = {"grpo", "gspo", "ppo"}});
  b.field("eps_clip", o.clip, {.doc = "Lower clip.", .min = 0, .max = 1, .min_exclusive = true});
  b.field("eps_clip_high", o.clip_high, {.doc = "Upper clip | default eps_clip.", .min = 0});
  b.end_section();
  b.begin_section("train", "The trainer.");
  b.field("max_tokens_per_gpu", o.max_tokens, {.unit = "tokens", .doc = "Budget.", .min = 1});
  b.end_section();
  b.begin_section("optimizer", "The optimizer.");
  b.field("lr", o.lr, {.doc = "Peak learning rate.", .min = 0});
  b.end_section();
  b.begin_section("parallel", "The grid.");
  b.field("actor_num_gpus", o.actor_num_gpus, {.doc = "Trainer ranks.", .min = 1, .slime = "-"});
  b.end_section();
  b.begin_section("reward", "Grading.");
  b.field("rm_type", o.rm_type, {.doc = "The grader."});
  b.end_section();
  b.begin_section("eval", "Evaluation.");
  b.field("eval_prompt_data", o.eval_sets, {.doc = "Name and file of each set."});
  b.end_section();
}

}  // namespace slimexx::config
