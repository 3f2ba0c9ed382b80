// Run configuration: one YAML tree (with `defaults:` files underneath and --set overrides on top)
// bound to plain option structs. A module declares its options once, in a function
//
//   void bind(config::Binder& b, RolloutOptions& o) {
//     b.field("num_rollout", o.num_rollout, {.unit = "rollouts", .doc = "...", .min = 1});
//   }
//
// whose defaults are the struct's own; from it follow the parser, the checks,
// `config.resolved.yaml`, and docs/reference/config.md. Every value knows where it came from, and
// all errors of a file are reported at once.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace slimexx::config {

struct FieldMeta {
  std::string unit = {};  // "tokens", "s", ...; empty: none
  std::string doc = {};   // one sentence
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_exclusive = false;
  std::vector<std::string> choices = {};  // of a string field
  // Values of a choice that other programs know, and what to say: {"ppo", "planned: a critic"}.
  std::vector<std::pair<std::string, std::string>> refused_choices = {};
  // slime's flag if its name is not --<key with dashes>; "-" if slime has none
  std::string slime = {};
  // The planned feature that the key belongs to. The key is known and its value is checked, but
  // only the default is accepted; others are refused with "planned: <later>". Empty: the key works.
  std::string later = {};
  // With `later`: the key is a detail of a planned feature and does not ask for it; every value is
  // accepted.
  bool is_detail = false;
  // When the key is looked at: the name of a condition, which the owner of the keys checks and the
  // reference prints. Empty: always.
  std::string when = {};
  // A key that is set while it is not looked at is refused; with this it is named when the run
  // starts.
  bool may_idle = false;
  // An address: resolved_yaml() leaves its user, password and query out.
  bool is_address = false;
};

// One option as the reference documents it.
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
  // Free-form JSON text of whatever YAML stands there (apply_chat_template_kwargs); empty: absent.
  virtual void json_field(const std::string& key, std::string& value, const FieldMeta& meta) = 0;
  // Fields bound between begin and end have the prefix "name.".
  virtual void begin_section(const std::string& name, const std::string& doc) = 0;
  virtual void end_section() = 0;

  // A key of a feature that is planned (FieldMeta::later). Nothing keeps its value.
  template <class T>
  void later(const std::string& key, T neutral, const FieldMeta& meta) {
    field(key, neutral, meta);
  }
};

// A key that was accepted without effect.
struct TakenKey {
  std::string path, why;
};

struct Override {
  std::string key, value;  // --set key=value, the value as a YAML scalar or flow sequence
};

class Config {
 public:
  // Reads `path` and its `defaults:` chain (cycles, duplicate keys, anchors' abuse, `<<` and
  // unknown tags refused; files over 1 MiB refused), then applies overrides. ${path.to.key} and
  // ${env:NAME:-default} are replaced ($${ is a literal ${); a reference must name a key that a
  // file or an override sets. null means the default. Relative paths inside stay as written, but
  // those under `defaults:` are relative to the file that names them. An empty path starts from
  // nothing.
  static Config load(const std::string& path, const std::vector<Override>& overrides);
  static Config parse(const std::string& yaml, const std::string& name,
                      const std::vector<Override>& overrides);
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;
  ~Config();

  // A binder that sets fields from the tree and collects faults: wrong types, out-of-range values,
  // unknown choices. Whole numbers written as 1e6 or 4_608 are read as they mean; 010 is not.
  Binder& binder();
  // A fault that no single field can see, such as a contradiction between two keys. Nothing is
  // added where has_fault(key): the value could not be read.
  void add_fault(const std::string& key, const std::string& reason, const std::string& hint);
  // Whether the value of the key, its section or an item in it could not be read.
  bool has_fault(const std::string& key) const;
  // After all modules have bound and checked: keys that no module bound are faults too (with the
  // nearest known key; a slime flag spelt with dashes or a verl/TRL name gets a hint). Throws one
  // Error(kUsage) that lists every fault as file:line:column, key, reason, remedy.
  // Flags of slime, Megatron or SGLang that are not needed here are accepted (taken_keys).
  void finish();
  // After finish(): the keys that were accepted without effect, in the order of the file.
  const std::vector<TakenKey>& taken_keys() const;
  // A key that nothing looks at in this run: one more of taken_keys(), and resolved_yaml() shows
  // its default.
  void take_idle(const std::string& path, const std::string& why);

  // The bound fields that a file or an override sets to another value than their default.
  std::vector<FieldInfo> changed_fields() const;
  // Whether `path` is set by a file that lies under the one, or under the override, that sets
  // `other`: what lies above has changed its mind.
  bool is_below(const std::string& path, const std::string& other) const;
  bool is_set(const std::string& path) const;         // by a file or an override, not by default
  std::string origin(const std::string& path) const;  // "FILE:12:5", "--set", "default"
  // Every bound field with its value when it was last bound, as YAML that load() reads back to the
  // same values. ${env:...} stand in it as the file has them, and comments in front tell by a short
  // digest whether a variable has changed (list_changes). To show values derived after binding,
  // bind the completed structs again: keys that nothing sets keep the struct's value, and their
  // origin becomes "derived".
  std::string resolved_yaml() const;
  // The same with the values of variables, to be compared and not to be kept. Of an address neither
  // has the secrets.
  std::string expanded_yaml() const;
  // "path = value  (origin)" lines.
  std::string describe_origins() const;

 private:
  struct Impl;
  explicit Config(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A key whose value differs between two configurations; "" where one of them does not have it.
struct SettingChange {
  std::string key, before, after;
};
// The changes between two texts of resolved_yaml(), in the order of `after`, then the keys that
// only `before` has. Throws Error(kUsage) for text that is not YAML.
std::vector<SettingChange> list_changes(const std::string& before, const std::string& after);

// A binder that only lists: for the reference and the schema.
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

// docs/reference/config.md from the field list, and docs/reference/slime-flags.md from it and from
// the flags of slime, Megatron and SGLang: the status of each.
std::string write_config_reference(const FieldLister& fields);
std::string write_flag_reference(const FieldLister& fields);

}  // namespace slimexx::config
