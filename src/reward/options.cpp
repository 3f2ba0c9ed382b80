#include "slimexx/reward/options.h"

#include <utility>
#include <vector>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {
namespace {

constexpr double kMaxInt32 = 2147483647;

}  // namespace

void bind(config::Binder& b, RewardOptions& o) {
  b.begin_section("reward", "Grading of responses.");
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
          {.doc = "The grader that computes rewards; docs/howto/reward.md describes all of them.",
           .choices = names,
           .refused_choices = refused,
           .when = "responses are graded",
           .may_idle = true});
  b.field(
      "reward_key", o.reward_key,
      {.doc = "The grader's value to use as reward, such as score for dapo; empty: the default.",
       .when = "responses are graded",
       .may_idle = true});
  b.field("rm_url", o.rm_url,
          {.doc = "URL to which `remote` posts prompt, response, label and metadata. Logs and "
                  "config.resolved.yaml do not show its user, password and query. Write secrets as "
                  "${env:NAME}; config.resolved.yaml then keeps that form.",
           .when = "responses are graded",
           .may_idle = true,
           .is_address = true});
  b.field("rm_timeout_s", o.rm_timeout_s,
          {.unit = "s",
           .doc = "Timeout per request.",
           .min = 0,
           .max = 86400,
           .min_exclusive = true,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_retries", o.rm_retries,
          {.doc = "Attempts per request, including the first.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_max_connections", o.rm_max_connections,
          {.doc = "Maximum number of concurrent requests.",
           .min = 1,
           .max = 65536,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field(
      "on_failure", o.on_failure,
      {.doc = "What to do with a sample that the grader cannot score. mask: do not train on it, "
              "and leave it out of its group's statistics. stop: end the run. The run ends in any "
              "case if no sample of a rollout gets a score, or if the service cannot be reached.",
       .choices = {"mask", "stop"},
       .slime = "-",
       .when = "responses are graded",
       .may_idle = true});
  b.end_section();
}

}  // namespace slimexx::reward
