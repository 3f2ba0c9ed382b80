// A run's metrics by name (slime's names), checked against one catalogue, written to
// metrics.jsonl, TensorBoard and the console's step line by rank 0.
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
  bool reserved = false;  // a name for later: no run writes it
};
const std::vector<MetricInfo>& metric_catalogue();
const MetricInfo* find_metric(std::string_view name);  // null: not in the catalogue

// One step's values in the order they were set. Setting a name that the catalogue lacks or reserves
// is our own bug (SLX_CHECK).
class MetricRow {
 public:
  void set(std::string_view name, double value);
  const double* find(std::string_view name) const;
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }
  void merge(const MetricRow& other);

 private:
  std::vector<std::pair<std::string, double>> values_;
};

// mean, median, max, min of `values` under name/mean ... (slime's compute_statistics); nothing if
// empty.
void set_statistics(MetricRow& row, const std::string& name, const std::vector<double>& values);

// Where a run failed, for status.json.
struct FailurePlace {
  int rank = -1;                  // -1: all alike
  std::string host, phase, call;  // call: empty outside of collective calls
};

// The state "failed" in status.json, whose other values stay but for `step`, unless that is -1. Any
// rank may call it, and any of its threads. The first cause stands: returns whether this is it.
// `error`: what failed. Where nothing can be written it throws Error(kEnvironment).
bool write_first_failure(const std::string& run_dir, int64_t step, std::string_view error,
                         const FailurePlace& place);
// Before a run: what was told of an earlier one does not count any more.
void forget_failure(const std::string& run_dir);

// Writes the run folder. Rank 0 only; on other ranks every call but write_failure does nothing.
class RunLog {
 public:
  struct Options {
    std::string run_dir;  // made if needed
    bool tensorboard = true;
    bool enabled = true;  // false on other ranks
    // Rows of metrics.jsonl with "step" >= this are from a run that was cut off: dropped.
    int64_t resume_step = 0;
    int64_t resume_train_step = 0;  // optimizer steps that the checkpoint knows
    int64_t total_steps = 0;        // for the eta
  };
  explicit RunLog(const Options& options);
  ~RunLog();
  const std::string& run_dir() const;

  // Appends {"step": step, "wall_time": ..., name: value, ...} to metrics.jsonl and the scalars to
  // tb/events.out.tfevents.*, flushed; non-finite values as null. `step` is the rollout's number.
  void write_row(int64_t step, const MetricRow& row);
  // The same for one optimizer step of a rollout: to train_steps.jsonl, as {"step": train_step,
  // "rollout": rollout, ...}, and to tb/optimizer_steps.
  void write_train_step(int64_t rollout, int64_t train_step, const MetricRow& row);
  // A text for TensorBoard's page of texts, such as a table.
  void write_text(int64_t step, const std::string& tag, const std::string& markdown);
  // The console's one line a step, with a header every 20 lines: step, reward, pass@1, len, ref_kl,
  // clip%, H, |g|, lr, gen s, train s, tok/s, mem, eta. Absent values print as "-". Colour only on
  // a terminal (NO_COLOR respected) and only for anomalies.
  void print_step(int64_t step, const MetricRow& row);
  // status.json, replaced atomically: {"state": ..., "step": ..., "total_steps", "eta_s", "error",
  // "warning", "not_learning", "failure": null or {"rank", "host", "phase", "call"}}. Not once a
  // failure was told.
  void write_status(std::string_view state, int64_t step, std::string_view error = "",
                    std::string_view warning = "");
  // For each status from here on: why the run learns nothing; empty if it does.
  void set_not_learning(std::string why);
  // The state "failed" (write_first_failure).
  void write_failure(int64_t step, std::string_view error, const FailurePlace& place = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Markdown that shows `text` unchanged, for write_text.
std::string markdown_code(std::string_view text);

// docs/reference/metrics.md from the catalogue.
std::string write_metrics_reference();

}  // namespace slimexx::observe
