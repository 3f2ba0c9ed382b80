// Run configuration: one YAML tree, merged from `defaults:` files, the file itself and --set
// overrides, and bound to plain option structs. A module declares its options once, in a function
//
//   void bind(config::Binder& b, RolloutOptions& o) {
//     b.field("num_rollout", o.num_rollout, {.unit = "rollouts", .doc = "...", .min = 1});
//   }
//
// with the struct's initial values as defaults. The parser, the checks, `config.resolved.yaml` and
// docs/reference/config.md all use this function. Every value records its origin, and all errors
// of a file are reported at once.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace slimexx::config {

struct FieldMeta {
  std::string unit = {};  // "tokens", "s", ...; empty: none
  std::string doc = {};   // one sentence
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_exclusive = false;
  std::vector<std::string> choices = {};  // allowed values of a string field
  // Choices of other programs that are refused, with the reason: {"ppo", "planned: a critic"}.
  std::vector<std::pair<std::string, std::string>> refused_choices = {};
  // slime's flag if its name is not --<key with dashes>; "-" if slime has none
  std::string slime = {};
  // The planned feature that the key belongs to. The value is checked, but only the default is
  // accepted; others are refused with "planned: <later>". Empty: the key works.
  std::string later = {};
  // With `later`: the key only tunes a planned feature and does not enable it, so every value is
  // accepted.
  bool is_detail = false;
  // Name of the condition under which the key is used. The module of the key checks it, and the
  // reference prints it. Empty: always used.
  std::string when = {};
  // A key that is set but unused is refused; with may_idle it is only reported at the start.
  bool may_idle = false;
  // The value is an address: resolved_yaml() omits its user, password and query.
  bool is_address = false;
};

// One option for the reference.
struct FieldInfo {
  std::string path;  // "rollout.num_rollout"
  std::string type;  // "int", "float", "bool", "string", "list of int", "map of string", ...
  std::string default_text;
  FieldMeta meta;
};

struct Tree;  // the merged YAML tree with origins

class Binder {
 public:
  virtual ~Binder() = default;
  virtual void field(const std::string& key, int64_t& value, const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, double& value, const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, bool& value, const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, std::string& value, const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, std::optional<int64_t>& value,
                     const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, std::optional<double>& value,
                     const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, std::vector<int64_t>& value,
                     const FieldMeta& meta) = 0;
  virtual void field(const std::string& key, std::vector<std::string>& value,
                     const FieldMeta& meta) = 0;
  // Ordered map of strings, such as eval.eval_prompt_data: {aime: FILE}.
  virtual void field(const std::string& key,
                     std::vector<std::pair<std::string, std::string>>& value,
                     const FieldMeta& meta) = 0;
  // Any YAML value, stored as JSON text (apply_chat_template_kwargs); empty: absent.
  virtual void json_field(const std::string& key, std::string& value, const FieldMeta& meta) = 0;
  // Fields bound between begin and end have the prefix "name.".
  virtual void begin_section(const std::string& name, const std::string& doc) = 0;
  virtual void end_section() = 0;

  // A key of a planned feature (FieldMeta::later). Its value is not stored.
  template <class T>
  void later(const std::string& key, T neutral, const FieldMeta& meta) {
    field(key, neutral, meta);
  }
};

// A key that was accepted without effect.
struct TakenKey {
  std::string path, why;
};

// The value of a field that the program derives.
using DerivedValue = std::variant<std::optional<int64_t>, std::optional<double>, std::string,
                                  std::vector<int64_t>, std::vector<std::string>>;

struct Override {
  std::string key, value;  // --set key=value, the value as a YAML scalar or flow sequence
};

class Config {
 public:
  // Reads `path` and its `defaults:` chain, then applies overrides. Refuses cycles, duplicate keys,
  // exponential aliases, `<<`, unknown tags and files over 1 MiB. Replaces ${path.to.key} and
  // ${env:NAME:-default} ($${ is a literal ${); a reference must name a key that a file or an
  // override sets. null means the default. Paths under `defaults:` are relative to the file that
  // contains them; other relative paths stay as written. An empty `path` means no file.
  static Config load(const std::string& path, const std::vector<Override>& overrides);
  static Config parse(const std::string& yaml, const std::string& name,
                      const std::vector<Override>& overrides);
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;
  ~Config();

  // A binder that sets fields from the tree and collects faults: wrong types, out-of-range values,
  // unknown choices. Accepts whole numbers written as 1e6 or 4_608, but not 010.
  Binder& binder();
  // Adds a fault that no single field can detect, such as a contradiction between two keys. Does
  // nothing if has_fault(key), because the value could not be read.
  void add_fault(const std::string& key, const std::string& reason, const std::string& hint);
  // Whether the value of the key, its section or an item in it could not be read.
  bool has_fault(const std::string& key) const;
  // Call it after all modules have bound and checked. Keys that no module bound are faults too; the
  // hint is the nearest known key, or the key for a slime flag with dashes or a verl/TRL name.
  // Accepts flags of slime, Megatron or SGLang that are not needed here (taken_keys). Throws one
  // Error(kUsage) that lists every fault as file:line:column, key, reason, remedy.
  void finish();
  // After finish(): the keys that were accepted without effect, in the order of the file.
  const std::vector<TakenKey>& taken_keys() const;
  // Declares a key unused in this run: taken_keys() lists it, and resolved_yaml() shows its
  // default (unless may_idle).
  void take_idle(const std::string& path, const std::string& why);

  // Shows `value` as the value of the bound field `path`, with the origin "derived" unless it is
  // the default. Does nothing if the configuration sets the key.
  void derive(const std::string& path, const DerivedValue& value);

  // The bound fields that a file or an override sets to a value other than the default.
  std::vector<FieldInfo> changed_fields() const;
  // Whether the source of `other` (a file or an override) has precedence over the file that sets
  // `path`, so that `other` is the later decision.
  bool is_below(const std::string& path, const std::string& other) const;
  bool is_set(const std::string& path) const;         // by a file or an override
  std::string origin(const std::string& path) const;  // "FILE:12:5", "--set", "default"
  // Every bound field with its value at binding or from derive(), as YAML that load() reads back to
  // the same values. Keeps ${env:...} unexpanded; comments at the top have a short digest of each
  // variable, so that list_changes detects changes.
  std::string resolved_yaml() const;
  // Like resolved_yaml(), with environment variables expanded. For comparison only: do not store
  // it. Neither text contains the secrets of addresses.
  std::string expanded_yaml() const;

 private:
  struct Impl;
  explicit Config(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A key with different values in two configurations; "" if one of them does not have the key.
struct SettingChange {
  std::string key, before, after;
};
// The changes between two texts of resolved_yaml(), in the order of `after`, then the keys that
// only `before` has. Throws Error(kUsage) for text that is not YAML.
std::vector<SettingChange> list_changes(const std::string& before, const std::string& after);

// A binder that only lists the fields, for the reference and the schema.
class FieldLister : public Binder {
 public:
  FieldLister();
  ~FieldLister() override;
  const std::vector<FieldInfo>& fields() const;
  const std::vector<std::pair<std::string, std::string>>& sections() const;  // name, doc
  void field(const std::string& key, int64_t& value, const FieldMeta& meta) override;
  void field(const std::string& key, double& value, const FieldMeta& meta) override;
  void field(const std::string& key, bool& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::string& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::optional<int64_t>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::optional<double>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::vector<int64_t>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::vector<std::string>& value,
             const FieldMeta& meta) override;
  void field(const std::string& key, std::vector<std::pair<std::string, std::string>>& value,
             const FieldMeta& meta) override;
  void json_field(const std::string& key, std::string& value, const FieldMeta& meta) override;
  void begin_section(const std::string& name, const std::string& doc) override;
  void end_section() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Text of docs/reference/config.md from the field list, and of docs/reference/slime-flags.md, which
// gives the status of every flag of slime, Megatron and SGLang.
std::string write_config_reference(const FieldLister& fields);
std::string write_flag_reference(const FieldLister& fields);

}  // namespace slimexx::config
