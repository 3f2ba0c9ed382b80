// A run's metrics by name (slime's names). Names are checked against one catalogue. Rank 0 writes
// the metrics to metrics.jsonl, TensorBoard and the step line on the console.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slimexx::observe {

// One row of src/observe/metrics.def. A name ending in "*" is a family ("eval/*/pass@1").
struct MetricInfo {
  std::string_view name, unit, meaning, healthy;
};
const std::vector<MetricInfo>& metric_catalogue();
const MetricInfo* find_metric(std::string_view name);  // null if not in the catalogue

// The values of one step in the order they were set. Setting a name that is not in the catalogue is
// a bug of the program (SLX_CHECK).
class MetricRow {
 public:
  void set(std::string_view name, double value);
  const double* find(std::string_view name) const;
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }
  void merge(const MetricRow& other);

 private:
  std::vector<std::pair<std::string, double>> values_;
};

// Sets name/mean, /median, /max and /min of `values` (slime's compute_statistics); nothing if
// `values` is empty.
void set_statistics(MetricRow& row, const std::string& name, const std::vector<double>& values);

// The place of a failure, for status.json.
struct FailurePlace {
  int rank = -1;                  // -1: the same failure on all ranks
  std::string host, phase, call;  // call: the collective call; empty outside one
};

// Sets the state "failed" and, if `step` is not -1, the step in status.json; keeps the other
// values. Any rank and any thread may call it. Only the first call of a run counts; returns whether
// this was the first. `error` is the message. Throws Error(kEnvironment) if nothing can be written.
bool write_first_failure(const std::string& run_dir, int64_t step, std::string_view error,
                         const FailurePlace& place);
// Called before a run: removes the recorded failure of an earlier run.
void forget_failure(const std::string& run_dir);

// Writes the run folder on rank 0. On other ranks every call except write_failure does nothing.
class RunLog {
 public:
  struct Options {
    std::string run_dir;  // created if needed
    bool tensorboard = true;
    bool enabled = true;  // false on other ranks
    // Rows of metrics.jsonl with "step" >= resume_step are dropped: they are from an interrupted
    // run.
    int64_t resume_step = 0;
    int64_t resume_train_step = 0;  // optimizer steps in the checkpoint
    int64_t total_steps = 0;        // for the ETA
  };
  explicit RunLog(const Options& options);
  ~RunLog();
  const std::string& run_dir() const;

  // Appends {"step": step, "wall_time": ..., name: value, ...} to metrics.jsonl and the scalars to
  // tb/events.out.tfevents.*, and flushes. Non-finite values become null. `step` is the number of
  // the rollout.
  void write_row(int64_t step, const MetricRow& row);
  // Like write_row, for one optimizer step of a rollout: appends {"step": train_step, "rollout":
  // rollout, ...} to train_steps.jsonl and writes to tb/optimizer_steps.
  void write_train_step(int64_t rollout, int64_t train_step, const MetricRow& row);
  // Writes a text, such as a table, for TensorBoard's text page.
  void write_text(int64_t step, const std::string& tag, const std::string& markdown);
  // Prints one line per step, with a header every 20 lines: step, reward, pass@1, len, ref_kl,
  // clip%, H, |g|, lr, gen s, train s, tok/s, mem, eta. Absent values print as "-". Only anomalies
  // are coloured, and only on a terminal without NO_COLOR.
  void print_step(int64_t step, const MetricRow& row);
  // Replaces status.json atomically: {"state": ..., "step": ..., "total_steps", "eta_s", "error",
  // "warning", "not_learning", "failure": null or {"rank", "host", "phase", "call"}}. After
  // write_first_failure, the status of the failure stays.
  void write_status(std::string_view state, int64_t step, std::string_view error = "",
                    std::string_view warning = "");
  // Sets "not_learning" for later statuses: why the run learns nothing; empty if it learns.
  void set_not_learning(std::string why);
  // Sets the state "failed" (write_first_failure).
  void write_failure(int64_t step, std::string_view error, const FailurePlace& place = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `text` as a Markdown code block for write_text.
std::string markdown_code(std::string_view text);

// Text of docs/reference/metrics.md from the catalogue.
std::string write_metrics_reference();

}  // namespace slimexx::observe
