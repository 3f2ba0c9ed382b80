#include "reward/remote/remote.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <random>

#include "reward/answers/text_scan.h"
#include "reward/graders.h"
#include "reward/remote/connection_pace.h"
#include "reward/remote/curl_start.h"
#include "reward/remote/secrets.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/url.h"

namespace slimexx::reward {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBodyBytes = 1 << 20;
constexpr int kPollMs = 200;
constexpr ShortName kService{"the reward service"};

struct EasyClose {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiClose {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// One input until it has a grade, over all its tries.
struct Request {
  std::string payload, body;
  std::unique_ptr<CURL, EasyClose> easy;
  size_t index = 0;
  int64_t tries = 0;
  Clock::time_point not_before;
  std::string failure;
  bool answered = false;   // the service answered the last try
  bool connected = false;  // in the current try
  Clock::time_point started;
  char detail[CURL_ERROR_SIZE] = "";
};

// Retries cannot repair an address that cannot be parsed.
void check_url(const std::string& address) {
  const std::unique_ptr<CURLU, UrlFree> url(curl_url());
  if (!url) throw std::bad_alloc();
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0);
  if (code == CURLUE_OK) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("rm_url '{}' is not a URL: {}", hide_secrets(address), curl_url_strerror(code)),
      "write it as http://host:port/path");
}

size_t append_body(char* data, size_t size, size_t count, void* request) {
  std::string& body = static_cast<Request*>(request)->body;
  if (body.size() + size * count > kMaxBodyBytes) return 0;  // makes curl abort the transfer
  body.append(data, size * count);
  return size * count;
}

std::string make_payload(const RewardInput& input) {
  Json payload = {{"prompt", replace_invalid_utf8(input.prompt)},
                  {"response", replace_invalid_utf8(input.response)},
                  {"label", replace_invalid_utf8(input.label)}};
  if (input.metadata) payload["metadata"] = *input.metadata;
  return payload.dump();
}

class RemoteGrader : public Grader {
 public:
  RemoteGrader(const RewardOptions& options, RemoteClock clock)
      : options_(options),
        clock_(clock),
        pace_(options.rm_max_connections, clock.stall_s),
        address_(hide_secrets(options.rm_url)),
        secrets_(list_secrets(options.rm_url)),
        generator_(std::random_device{}()) {
    initialize_curl();
    multi_.reset(curl_multi_init());
    headers_.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
    if (!multi_ || !headers_ || !curl_slist_append(headers_.get(), "Expect:")) {
      throw Error(ErrorCode::kEnvironment, "libcurl cannot allocate its handles");
    }
    curl_multi_setopt(multi_.get(), CURLMOPT_MAX_TOTAL_CONNECTIONS, max_connections());
    curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, max_connections());
  }

  std::vector<Grade> grade(std::span<const RewardInput> inputs) override {
    const std::lock_guard lock(mutex_);
    grades_.assign(inputs.size(), {});
    waiting_.clear();
    has_failed_ = false;
    last_grade_ = Clock::now();
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto request = std::make_unique<Request>();
      request->index = i;
      request->payload = make_payload(inputs[i]);
      waiting_.push_back(std::move(request));
    }
    try {
      while (!waiting_.empty() || !running_.empty()) {
        step();
        warn_if_due();
        tell_if_due();
      }
    } catch (...) {
      for (auto& request : running_) curl_multi_remove_handle(multi_.get(), request->easy.get());
      running_.clear();
      throw;
    }
    return std::move(grades_);
  }

 private:
  long max_connections() const { return static_cast<long>(options_.rm_max_connections); }

  // Starts requests that are due, lets curl work until something happens, collects finished ones.
  void step() {
    start_due();
    int active = 0;
    check(curl_multi_perform(multi_.get(), &active));
    CURLMsg* message = nullptr;
    int left = 0;
    bool ended = false;
    while ((message = curl_multi_info_read(multi_.get(), &left)) != nullptr) {
      if (message->msg != CURLMSG_DONE) continue;
      finish(message->easy_handle, message->data.result);
      ended = true;
    }
    note_connections();
    if (ended || may_start()) return;
    const OutsideWaitScope wait(kService);
    check(curl_multi_poll(multi_.get(), nullptr, 0, poll_ms(), nullptr));
  }

  static void check(CURLMcode code) {
    if (code != CURLM_OK) throw Error(ErrorCode::kRun, "libcurl failed", curl_multi_strerror(code));
  }

  // Time until the next waiting request is due, or a connection may be given up.
  int poll_ms() const {
    constexpr int kOpeningMs = 20;
    if (!has_room()) return num_opening() > 0 ? kOpeningMs : kPollMs;
    auto next = Clock::now() + std::chrono::milliseconds(kPollMs);
    for (const auto& request : waiting_) next = std::min(next, request->not_before);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(wait.count(), 0, kPollMs));
  }

  int64_t num_opening() const {
    return std::ranges::count_if(running_, [](const auto& r) { return !r->connected; });
  }
  bool has_room() const { return pace_.has_room(std::ssize(running_), num_opening()); }

  bool may_start() const {
    const auto now = Clock::now();
    return has_room() && std::ranges::any_of(waiting_, [&](const auto& request) {
             return request->not_before <= now;
           });
  }

  void start_due() {
    const auto now = Clock::now();
    for (size_t i = 0; i < waiting_.size();) {
      if (!has_room()) return;
      if (waiting_[i]->not_before > now) {
        ++i;
        continue;
      }
      running_.push_back(std::move(waiting_[i]));
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
      start(*running_.back());
    }
  }

  // Requeues requests that cannot connect while the service answers others: the service has no room
  // for more.
  void note_connections() {
    for (const auto& request : running_) {
      if (request->connected) continue;
      curl_off_t looked_up = 0, taken = 0, ready = 0;  // microseconds; 0: not yet
      curl_easy_getinfo(request->easy.get(), CURLINFO_NAMELOOKUP_TIME_T, &looked_up);
      curl_easy_getinfo(request->easy.get(), CURLINFO_CONNECT_TIME_T, &taken);
      curl_easy_getinfo(request->easy.get(), CURLINFO_PRETRANSFER_TIME_T, &ready);
      request->connected = taken > 0 || ready > 0;
      if (taken > looked_up) pace_.note_taken(static_cast<double>(taken - looked_up) * 1e-6);
      if (looked_up == 0) request->started = Clock::now();
    }
    const auto goes_on = [&](const auto& request) {
      return request->connected || request->started > last_grade_ ||
             Clock::now() - request->started < as_duration(pace_.patience_s());
    };
    const auto first = std::stable_partition(running_.begin(), running_.end(), goes_on);
    if (first == running_.end()) return;
    for (auto it = first; it != running_.end(); ++it) {
      curl_multi_remove_handle(multi_.get(), (*it)->easy.get());
      --(*it)->tries;
      (*it)->not_before = Clock::now();
      waiting_.push_back(std::move(*it));
    }
    running_.erase(first, running_.end());
    pace_.note_stall(std::ssize(running_));
  }

  void start(Request& request) {
    ++request.tries;
    request.connected = false;
    request.started = Clock::now();
    request.body.clear();
    request.detail[0] = 0;
    request.easy.reset(curl_easy_init());
    CURL* easy = request.easy.get();
    if (!easy) throw Error(ErrorCode::kEnvironment, "libcurl cannot allocate a request");
    curl_easy_setopt(easy, CURLOPT_URL, options_.rm_url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_.get());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.payload.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.payload.c_str());
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.rm_timeout_s * 1000));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &request);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request.detail);
    check(curl_multi_add_handle(multi_.get(), easy));
  }

  void finish(CURL* easy, CURLcode code) {
    note_progress();
    const auto it = std::find_if(running_.begin(), running_.end(),
                                 [&](const auto& request) { return request->easy.get() == easy; });
    curl_multi_remove_handle(multi_.get(), easy);
    std::unique_ptr<Request> request = std::move(*it);
    running_.erase(it);
    if (accept(*request, code)) return;
    retry(std::move(request));
  }

  bool accept(Request& request, CURLcode code) {
    long status = 0;
    curl_easy_getinfo(request.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    request.answered = code == CURLE_OK || code == CURLE_WRITE_ERROR;
    if (code == CURLE_WRITE_ERROR) {
      request.failure = fmt::format("its answer is longer than {}", format_bytes(kMaxBodyBytes));
    } else if (code != CURLE_OK) {
      request.failure = request.detail[0] ? request.detail : curl_easy_strerror(code);
    } else if (status < 200 || status > 299) {
      request.failure = fmt::format("HTTP status {}: '{}'", status,
                                    shorten(hide_all(request.body, secrets_), 120));
    } else {
      if (read_grade(request.body, request)) return true;
      // Read again, so that the failure quotes no secret.
      read_grade(hide_all(request.body, secrets_), request);
    }
    request.failure = hide_all(request.failure, secrets_);
    return false;
  }

  // Returns false, and sets the failure, if the answer is not a grade.
  bool read_grade(const std::string& body, Request& request) {
    try {
      grades_[request.index] = read_remote_grade(body, options_.reward_key);
      note_grade();
      return true;
    } catch (const Error& error) {
      request.failure = error.message();
      if (!error.hint().empty()) request.failure += " (" + error.hint() + ")";
      return false;
    }
  }

  void note_grade() {
    last_grade_ = Clock::now();
    pace_.note_answer();
  }

  // If the service answers, it is reachable, and only this sample goes without a reward.
  void give_up(const Request& request) {
    const std::string what =
        fmt::format("the reward service at {} gave no reward in {} attempts: {}", address_,
                    request.tries, request.failure);
    if (!request.answered) {
      throw Error(
          ErrorCode::kRun, what,
          "check the service's log; rm_timeout_s and rm_retries set how long to wait for it");
    }
    grades_[request.index] = failed_grade(what);
  }

  void retry(std::unique_ptr<Request> request) {
    if (request->tries >= options_.rm_retries) return give_up(*request);
    const int doublings = static_cast<int>(std::min<int64_t>(request->tries - 1, 5));
    const double units = std::min(std::ldexp(1.0, doublings), 30.0) +
                         std::uniform_real_distribution<double>(0, 1)(generator_);
    const double wait_s = units * clock_.backoff_unit_s;
    log_debug("reward service {}: {}; attempt {} of {} follows in {:.1f} s", address_,
              request->failure, request->tries + 1, options_.rm_retries, wait_s);
    request->not_before = Clock::now() + as_duration(wait_s);
    has_failed_ = true;
    waiting_.push_back(std::move(request));
  }

  // Logs the wait, so that a slow service is not mistaken for a program that hangs.
  void tell_if_due() {
    const auto now = Clock::now();
    if (has_failed_ || now - last_grade_ < as_duration(clock_.tell_after_s) || now < next_telling_)
      return;
    log_info("waiting for the reward service at {}: {} of {} remaining responses are in flight",
             options_.rm_url, running_.size(), waiting_.size() + running_.size());
    next_telling_ = now + as_duration(clock_.warn_interval_s);
  }

  // Logs that the run waits for its service: at the first failure, then repeatedly while a failed
  // request has no reward.
  void warn_if_due() {
    if (!has_failed_ || Clock::now() < next_warning_) return;
    const Request* worst = nullptr;
    int64_t num_failed = 0, most_tries = 0;
    const auto look = [&](const auto& requests, int64_t pending) {
      for (const auto& request : requests) {
        if (request->failure.empty()) continue;
        ++num_failed;
        if (request->tries + pending <= most_tries) continue;
        most_tries = request->tries + pending;
        worst = request.get();
      }
    };
    look(waiting_, 1);
    look(running_, 0);
    if (!worst) return;
    log_warn("the reward service at {} fails: {}; {} of {} requests are repeated, attempt {} of {}",
             address_, worst->failure, num_failed, waiting_.size() + running_.size(), most_tries,
             options_.rm_retries);
    next_warning_ = Clock::now() + as_duration(clock_.warn_interval_s);
  }

  static Clock::duration as_duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  RewardOptions options_;
  RemoteClock clock_;
  ConnectionPace pace_;
  const std::string address_;               // for messages
  const std::vector<std::string> secrets_;  // to hide in failure messages
  bool has_failed_ = false;                 // in this call of grade
  Clock::time_point next_warning_ = Clock::time_point::min();
  Clock::time_point next_telling_ = Clock::time_point::min(), last_grade_;
  std::mt19937_64 generator_;  // jitters the waits; results do not depend on it
  std::mutex mutex_;
  std::unique_ptr<CURLM, MultiClose> multi_;
  std::unique_ptr<curl_slist, ListFree> headers_;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::vector<std::unique_ptr<Request>> running_;
  std::vector<Grade> grades_;
};

}  // namespace

void initialize_curl() {
  static const CURLcode kStatus = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kStatus != CURLE_OK) {
    throw Error(ErrorCode::kEnvironment, "libcurl cannot start", curl_easy_strerror(kStatus));
  }
}

std::unique_ptr<Grader> make_remote_grader(const RewardOptions& options, RemoteClock clock) {
  if (options.rm_url.empty()) {
    throw Error(ErrorCode::kUsage, "rm_type remote needs an rm_url",
                "set rm_url to the URL that takes the requests, such as http://host:port/path");
  }
  if (!options.rm_url.starts_with("http://") && !options.rm_url.starts_with("https://")) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("rm_url '{}' is not an http or https URL", hide_secrets(options.rm_url)),
        "write it as http://host:port/path");
  }
  check_url(options.rm_url);
  if (!(options.rm_timeout_s >= 0.001) || options.rm_timeout_s > 1e6 || options.rm_retries < 1 ||
      options.rm_max_connections < 1 || options.rm_max_connections > 65536) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("rm_timeout_s {}, rm_retries {} or rm_max_connections {} is out of range",
                    options.rm_timeout_s, options.rm_retries, options.rm_max_connections),
        "rm_timeout_s must be at least 0.001, the others at least 1");
  }
  return std::make_unique<RemoteGrader>(options, clock);
}

}  // namespace slimexx::reward
