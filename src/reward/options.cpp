#include "slimexx/reward/options.h"

#include <utility>
#include <vector>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {
namespace {

constexpr double kMaxInt32 = 2147483647;

}  // namespace

void bind(config::Binder& b, RewardOptions& o) {
  b.begin_section("reward", "What a response is worth.");
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> refused = {
      {"remote_rm", "here it is remote"}, {"ifbench", "planned: instruction-following rules"}};
  for (const auto& info : list_rewards()) {
    names.push_back(info.name);
    if (info.instead_of_boxed.empty()) {
      names.push_back("boxed_" + info.name);
    } else {
      refused.push_back(
          {"boxed_" + info.name, "no response can be right: " + info.instead_of_boxed});
    }
  }
  b.field("rm_type", o.rm_type,
          {.doc = "The grader; docs/howto/reward.md lists them.",
           .choices = names,
           .refused_choices = refused,
           .when = "responses are graded",
           .may_idle = true});
  b.field("reward_key", o.reward_key,
          {.doc = "Take this value of the grader's as the reward, such as dapo's score.",
           .when = "responses are graded",
           .may_idle = true});
  b.field(
      "rm_url", o.rm_url,
      {.doc =
           "Where `remote` posts prompt, response, label and metadata. Neither logs nor "
           "config.resolved.yaml show its user, password and query; write ${env:NAME} for what is "
           "secret, which stays so in that file.",
       .when = "responses are graded",
       .may_idle = true,
       .is_address = true});
  b.field("rm_timeout_s", o.rm_timeout_s,
          {.unit = "s",
           .doc = "Time-out of one request.",
           .min = 0,
           .max = 86400,
           .min_exclusive = true,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_retries", o.rm_retries,
          {.doc = "Tries of one request, the first included.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_max_connections", o.rm_max_connections,
          {.doc = "Requests under way at once.",
           .min = 1,
           .max = 65536,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("on_failure", o.on_failure,
          {.doc = "What to do with a sample that the grader has no score for. mask: train without "
                  "it, and leave it out of its group's statistics; stop: end the run. A rollout of "
                  "such samples alone, or a service that cannot be reached, ends the run anyway.",
           .choices = {"mask", "stop"},
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.end_section();
}

}  // namespace slimexx::reward
