// The binder that sets fields from a tree.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/emit.h"
#include "config/tree.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

// A field after binding. Keeps values as YAML text, because the options struct may be moved or
// destroyed before the resolved configuration is written.
struct BoundField {
  FieldInfo info;
  std::string value;
  bool set = false;                           // by a file or an override
  std::string origin;                         // "run.yaml:12:5", "--set", "default", "derived"
  std::string shown = {};                     // replaces the value in resolved_yaml()
  std::vector<std::string> environment = {};  // the environment variables in the value
};

class TreeBinder : public Binder {
 public:
  explicit TreeBinder(Tree& tree) : tree_(tree) {}

  const std::vector<BoundField>& fields() const { return fields_; }
  const BoundField* find(const std::string& path) const;
  const std::vector<std::string>& sections() const { return sections_; }
  void derive(const std::string& path, std::string value);

  void field(const std::string& key, int64_t& value, const FieldMeta& meta) override;
  void field(const std::string& key, double& value, const FieldMeta& meta) override;
  void field(const std::string& key, bool& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::string& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::optional<int64_t>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::optional<double>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::vector<int64_t>& value, const FieldMeta& meta) override;
  void field(const std::string& key, std::vector<std::string>& value,
             const FieldMeta& meta) override;
  void field(const std::string& key, StringMap& value, const FieldMeta& meta) override;
  void json_field(const std::string& key, std::string& value, const FieldMeta& meta) override;
  void begin_section(const std::string& name, const std::string& doc) override;
  void end_section() override;

 private:
  template <class T, class Read, class Write>
  void bind(const std::string& key, const char* type, T& value, const FieldMeta& meta, Read read,
            Write write);
  template <class T, class Read>
  void bind(const std::string& key, const char* type, T& value, const FieldMeta& meta, Read read) {
    bind(key, type, value, meta, read, [](const T& v) { return to_yaml(v); });
  }
  Node* lookup(const std::string& key);
  std::string path_of(const std::string& key) const;
  void record(BoundField field);
  void fault(const Node& node, const std::string& path, std::string reason, std::string hint);

  // Adds a fault for each value in `node` that doubt_plain_value refuses; returns whether there are
  // any.
  bool has_doubtful_value(const Node& node, const std::string& path);

  const std::string* read_scalar(const Node& node, const std::string& path, const FieldMeta& meta,
                                 const char* type);
  std::optional<int64_t> read_whole(const Node& node, const std::string& path,
                                    const FieldMeta& meta);
  std::optional<double> read_real(const Node& node, const std::string& path, const FieldMeta& meta);
  std::optional<bool> read_bool(const Node& node, const std::string& path, const FieldMeta& meta);
  std::optional<std::string> read_string(const Node& node, const std::string& path,
                                         const FieldMeta& meta);
  template <class T, class Read>
  std::optional<std::vector<T>> read_list(const Node& node, const std::string& path, Read read);
  std::optional<StringMap> read_map(const Node& node, const std::string& path,
                                    const FieldMeta& meta);
  // Sets `shown`: the value with environment variables unexpanded and without secrets.
  static void show_unexpanded(const Node& node, BoundField& bound);
  // Adds a fault if the value of a planned key (FieldMeta::later) is not the default.
  void check_later(const Node& node, const FieldInfo& info, const std::string& value);
  bool check_range(const Node& node, const std::string& path, const FieldMeta& meta, double value);

  Tree& tree_;
  std::vector<std::string> stack_;
  std::vector<std::string> sections_;
  std::vector<BoundField> fields_;
  std::map<std::string, size_t> index_;
};

}  // namespace slimexx::config
