#include "reward/remote/remote.h"

#include <atomic>
#include <chrono>
#include <map>
#include <set>

#include "reward/case_file.h"
#include "reward/http_server.h"
#include "slimexx/base/error.h"
#include "slimexx/reward/remote_service.h"

namespace slimexx::reward {
namespace {

constexpr RemoteClock kFast = {.backoff_unit_s = 0.001};

class Remote : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) unsetenv(name);
  }
};

RewardOptions options_of(const std::string& url) {
  RewardOptions options;
  options.rm_type = "remote";
  options.rm_url = url;
  options.rm_timeout_s = 5;
  options.rm_retries = 4;
  options.rm_max_connections = 8;
  return options;
}

std::vector<RewardInput> make_inputs(int n) {
  std::vector<RewardInput> inputs(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    inputs[static_cast<size_t>(i)].prompt = "p";
    inputs[static_cast<size_t>(i)].response = std::to_string(i);
    inputs[static_cast<size_t>(i)].label = "l\"\n\u00e9";
  }
  return inputs;
}

// Returns the reason of the failed grade if a service answers without a reward.
std::string reason_of(const RewardOptions& options) {
  const Grade grade = make_remote_grader(options, kFast)->grade(make_inputs(1)).at(0);
  EXPECT_TRUE(grade.failed) << grade.reason;
  EXPECT_EQ(grade.reward, 0);
  EXPECT_NE(grade.reason.find(options.rm_url), std::string::npos) << grade.reason;
  return grade.reason;
}

// Returns the error that stops the run if the service cannot be reached.
std::string failure_of(const RewardOptions& options) {
  try {
    make_remote_grader(options, kFast)->grade(make_inputs(1));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRun);
    EXPECT_NE(error.message().find(options.rm_url), std::string::npos) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST_F(Remote, PostsJsonAndPutsAnswersInOrder) {
  std::mutex mutex;
  std::vector<Json> seen;
  HttpServer server([&](const std::string& body) {
    const Json request = parse_json(body, "request");
    const std::string response = request.at("response");
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(response) % 5));
    const std::lock_guard lock(mutex);
    seen.push_back(request);
    return HttpAnswer{200, response + ".5"};
  });
  auto inputs = make_inputs(100);
  inputs[3].metadata = std::make_shared<const Json>(Json{{"k", {1, 2}}});
  inputs[4].prompt = "\xff";
  const auto grader = make_remote_grader(options_of(server.url()), kFast);
  for (int round = 0; round < 2; ++round) {
    seen.clear();
    const auto grades = grader->grade(inputs);
    ASSERT_EQ(grades.size(), inputs.size());
    for (size_t i = 0; i < grades.size(); ++i) {
      EXPECT_EQ(grades[i].reward, static_cast<double>(i) + 0.5) << i;
      EXPECT_FALSE(grades[i].reason.empty());
    }
    ASSERT_EQ(seen.size(), inputs.size());
    for (const Json& request : seen) {
      const bool has_metadata = request.at("response") == "3";
      EXPECT_EQ(request.at("prompt"), request.at("response") == "4" ? "\ufffd" : "p");
      EXPECT_EQ(request.at("label"), "l\"\n\u00e9");
      EXPECT_EQ(request.contains("metadata"), has_metadata);
      if (has_metadata) {
        EXPECT_EQ(request["metadata"]["k"][1], 2);
      }
    }
  }
  EXPECT_LE(server.max_concurrent(), 8);
  EXPECT_GT(server.max_concurrent(), 1);
  EXPECT_LE(server.num_connections(), 8) << "connections are kept";
}

// If the service has no room for more connections, a request must not wait for TCP to retry its
// connection, which happens after one second, then after two, four, ...
TEST_F(Remote, DoesNotWaitForConnectionsThatAServiceHasNoRoomFor) {
  std::atomic<int> asked = 0;
  HttpServer server(
      [&](const std::string&) {
        ++asked;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return HttpAnswer{200, "0.5"};
      },
      HttpServer::Kind::kOneByOne);
  RewardOptions options = options_of(server.url());
  options.rm_max_connections = 64;
  const auto grader = make_remote_grader(options);
  const auto begin = std::chrono::steady_clock::now();
  for (const Grade& grade : grader->grade(make_inputs(256))) {
    EXPECT_FALSE(grade.failed);
    EXPECT_EQ(grade.reward, 0.5);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(asked, 256);
  EXPECT_LT(took.count(), 5) << "0.5 s of work";
}

TEST_F(Remote, FindsWhetherAServiceIsThere) {
  HttpServer server([&](const std::string&) { return HttpAnswer{200, "1"}; });
  EXPECT_EQ(find_service_fault(server.url()), "");
  EXPECT_NE(find_service_fault("http://127.0.0.1:1/"), "");
  EXPECT_NE(find_service_fault("http://no-such-host.invalid/"), "");
}

TEST_F(Remote, TriesAgainAfterFailures) {
  std::mutex mutex;
  std::map<std::string, int> tries;
  HttpServer server([&](const std::string& body) {
    const std::string response = parse_json(body, "request").at("response");
    const std::lock_guard lock(mutex);
    const int count = ++tries[response];
    if (count == 1) return HttpAnswer{503, "busy"};
    if (count == 2) return HttpAnswer{200, "", true};
    return HttpAnswer{200, R"({"reward": 0.25, "acc": true, "reason": "fine", "note": [1]})"};
  });
  const auto grades = make_remote_grader(options_of(server.url()), kFast)->grade(make_inputs(20));
  for (const Grade& grade : grades) {
    EXPECT_EQ(grade.reward, 0.25);
    EXPECT_EQ(grade.reason, "fine");
    EXPECT_EQ(grade.values, (std::map<std::string, double>{{"reward", 0.25}, {"acc", 1}}));
  }
  for (const auto& [response, count] : tries) EXPECT_EQ(count, 3) << response;
}

TEST_F(Remote, GivesUpNamingUrlAndLastFailure) {
  std::atomic<int> requests = 0;
  HttpServer server([&](const std::string&) {
    ++requests;
    return HttpAnswer{500, "no model loaded"};
  });
  const std::string failure = reason_of(options_of(server.url()));
  EXPECT_NE(failure.find("500"), std::string::npos) << failure;
  EXPECT_NE(failure.find("no model loaded"), std::string::npos) << failure;
  EXPECT_NE(failure.find("4 attempts"), std::string::npos) << failure;
  EXPECT_EQ(requests, 4);
}

TEST_F(Remote, RefusesAnswersThatAreNoReward) {
  const std::pair<const char*, const char*> kAnswers[] = {
      {"garbage", "garbage"},
      {"", "its answer is empty"},
      {"1e999", "1e999"},
      {"NaN", "NaN"},
      {"[1]", "[1]"},
      {"\"1\"", "neither"},
      {"{\"x\": 1}", "no 'reward'"},
      {"null", "null"},
      {"1 2", "1 2"},
      {"{\"reward\": \"1\"}", "not a finite number"},
      {"{\"reward\": 1, \"reward\": 2}", "reward"},
      {"<html>\xff</html>", "<html>"},
  };
  for (const auto& [body, part] : kAnswers) {
    HttpServer server([&, text = std::string(body)](const std::string&) {
      return HttpAnswer{200, text};
    });
    RewardOptions options = options_of(server.url());
    options.rm_retries = 2;
    const std::string failure = reason_of(options);
    EXPECT_NE(failure.find(part), std::string::npos) << failure;
  }
}

// "The grader failed" differs from "the score is 0", and does not affect the grades of other
// samples.
TEST_F(Remote, AnswerThatIsNoRewardFailsThatSampleOnly) {
  HttpServer server([&](const std::string& body) {
    const std::string response = parse_json(body, "request").at("response");
    return response == "3" ? HttpAnswer{500, "cannot grade"} : HttpAnswer{200, "0"};
  });
  const auto grades = make_remote_grader(options_of(server.url()), kFast)->grade(make_inputs(6));
  for (size_t i = 0; i < grades.size(); ++i) {
    EXPECT_EQ(grades[i].reward, 0) << i;
    EXPECT_EQ(grades[i].failed, i == 3) << i;
  }
  EXPECT_NE(grades[3].reason.find("HTTP status 500: 'cannot grade'"), std::string::npos)
      << grades[3].reason;
}

TEST_F(Remote, RefusesAnEndlessAnswer) {
  HttpServer server([&](const std::string&) { return HttpAnswer{200, std::string(3 << 20, '1')}; });
  RewardOptions options = options_of(server.url());
  options.rm_retries = 1;
  EXPECT_NE(reason_of(options).find("longer than"), std::string::npos);
}

TEST_F(Remote, StopsWaitingAfterTheTimeout) {
  std::atomic<bool> stop = false;
  HttpServer server([&](const std::string&) {
    for (int i = 0; i < 500 && !stop; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return HttpAnswer{200, "1"};
  });
  RewardOptions options = options_of(server.url());
  options.rm_timeout_s = 0.1;
  options.rm_retries = 2;
  const auto start = std::chrono::steady_clock::now();
  const std::string failure = failure_of(options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  stop = true;
  EXPECT_GE(taken.count(), 0.2);
  EXPECT_LT(taken.count(), 3.0);
  EXPECT_NE(failure.find("imed"), std::string::npos) << failure;
}

TEST_F(Remote, NamesAServiceThatIsNotThere) {
  std::string url;
  {
    const HttpServer server([](const std::string&) { return HttpAnswer{}; });
    url = server.url();
  }
  EXPECT_NE(failure_of(options_of(url)).find("connect"), std::string::npos);
}

TEST_F(Remote, TakesTheValueOfRewardKeyThroughMakeGrader) {
  HttpServer server([&](const std::string&) { return HttpAnswer{200, R"({"a": 1, "b": -2})"}; });
  RewardOptions options = options_of(server.url());
  options.reward_key = "b";
  EXPECT_EQ(make_grader(options)->grade(make_inputs(1)).at(0).reward, -2);
  options.reward_key = "c";
  options.rm_retries = 1;
  EXPECT_NE(reason_of(options).find("'c'"), std::string::npos);
  EXPECT_NE(reason_of(options).find("set reward_key"), std::string::npos);
  options.reward_key = "";
  EXPECT_TRUE(make_grader(options)->grade({}).empty());
}

TEST_F(Remote, BoxedSendsTheBox) {
  std::string response;
  HttpServer server([&](const std::string& body) {
    response = parse_json(body, "request").at("response");
    return HttpAnswer{200, "3"};
  });
  RewardOptions options = options_of(server.url());
  options.rm_type = "boxed_remote";
  auto inputs = make_inputs(1);
  inputs[0].response = "x \\boxed{7}";
  EXPECT_EQ(make_grader(options)->grade(inputs).at(0).reward, 3);
  EXPECT_EQ(response, "7");
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

// The log lines while `n` inputs are graded by a service that fails at first.
std::string warnings_of(const std::function<HttpAnswer()>& answer, int n, const RemoteClock& clock,
                        std::string& url) {
  HttpServer server([&](const std::string&) { return answer(); });
  url = server.url();
  RewardOptions options = options_of(url);
  options.rm_retries = 1000;
  testing::internal::CaptureStderr();
  make_remote_grader(options, clock)->grade(make_inputs(n));
  return testing::internal::GetCapturedStderr();
}

TEST_F(Remote, WarnsOnceWhenTheServiceFails) {
  std::atomic<int> requests = 0;
  std::string url;
  const std::string log = warnings_of(
      [&] {
        return ++requests <= 40 ? HttpAnswer{503, "busy"} : HttpAnswer{200, "1"};
      },
      20, kFast, url);
  EXPECT_EQ(count(log, "the reward service at " + url + " fails"), 1) << log;
  EXPECT_EQ(count(log, "HTTP status 503: 'busy'"), 1) << log;
  EXPECT_EQ(count(log, "attempt 2 of 1000"), 1) << log;
}

TEST_F(Remote, WarnsAgainWhileTheServiceFails) {
  const auto start = std::chrono::steady_clock::now();
  std::string url;
  const std::string log = warnings_of(
      [&] {
        const bool is_up = std::chrono::steady_clock::now() - start > std::chrono::seconds(1);
        return is_up ? HttpAnswer{200, "1"} : HttpAnswer{503, "busy"};
      },
      3, {.backoff_unit_s = 0.001, .warn_interval_s = 0.2}, url);
  EXPECT_GE(count(log, url), 3) << log;
  EXPECT_LE(count(log, url), 6) << log;
}

TEST_F(Remote, SaysNothingOfAServiceThatAnswers) {
  std::string url;
  EXPECT_EQ(warnings_of([] { return HttpAnswer{200, "1"}; }, 20, kFast, url), "");
}

TEST_F(Remote, RefusesUnusableOptions) {
  const auto refused = [](auto change) {
    RewardOptions options = options_of("http://127.0.0.1:1/");
    change(options);
    EXPECT_THROW(make_grader(options), Error);
  };
  refused([](RewardOptions& o) { o.rm_url = "127.0.0.1:80"; });
  refused([](RewardOptions& o) { o.rm_url = "file:///etc/passwd"; });
  for (const char* malformed : {"http://[::1", "http://", "http://host:99999/", "http://a b/",
                                "http://host:port/", "http://host/\x1b[31m"})
    refused([&](RewardOptions& o) { o.rm_url = malformed; });
  refused([](RewardOptions& o) { o.rm_timeout_s = 0; });
  refused([](RewardOptions& o) { o.rm_timeout_s = std::nan(""); });
  refused([](RewardOptions& o) { o.rm_retries = 0; });
  refused([](RewardOptions& o) { o.rm_max_connections = 0; });
}

}  // namespace
}  // namespace slimexx::reward
