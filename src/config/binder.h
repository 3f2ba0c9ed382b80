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

// A field after binding. Values are kept as YAML text: the options struct may be moved or gone when
// the resolved configuration is written.
struct BoundField {
  FieldInfo info;
  std::string value;
  bool set = false;                           // by a file or an override
  std::string origin;                         // "run.yaml:12:5", "--set", "default", "derived"
  std::string shown = {};                     // in resolved_yaml() in place of the value
  std::vector<std::string> environment = {};  // the variables that it names
};

class TreeBinder : public Binder {
 public:
  explicit TreeBinder(Tree& tree) : tree_(tree) {}

  const std::vector<BoundField>& fields() const { return fields_; }
  const BoundField* find(const std::string& path) const;
  const std::vector<std::string>& sections() const { return sections_; }

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

  // Whether it holds a value that doubt_plain_value refuses; lists each as a fault.
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
  // What resolved_yaml() has in place of the value: the variables of the environment, no secrets.
  static void show_unexpanded(const Node& node, BoundField& bound);
  // A value other than the default asks for what is planned.
  void check_later(const Node& node, const FieldInfo& info, const std::string& value);
  bool check_range(const Node& node, const std::string& path, const FieldMeta& meta, double value);

  Tree& tree_;
  std::vector<std::string> stack_;
  std::vector<std::string> sections_;
  std::vector<BoundField> fields_;
  std::map<std::string, size_t> index_;
};

}  // namespace slimexx::config
