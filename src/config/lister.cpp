#include "config/emit.h"
#include "slimexx/base/check.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

struct FieldLister::Impl {
  std::vector<FieldInfo> fields;
  std::vector<std::pair<std::string, std::string>> sections;
  std::vector<std::string> stack;

  std::string path_of(const std::string& key) const {
    std::string path;
    for (const auto& part : stack) path += part + ".";
    return path + key;
  }
  void add(const std::string& key, const char* type, std::string text, const FieldMeta& meta) {
    const std::string path = path_of(key);
    for (const auto& field : fields) SLX_CHECK(field.path != path, "{} is declared twice", path);
    fields.push_back({path, type, std::move(text), meta});
  }
};

FieldLister::FieldLister() : impl_(std::make_unique<Impl>()) {}
FieldLister::~FieldLister() = default;

const std::vector<FieldInfo>& FieldLister::fields() const { return impl_->fields; }
const std::vector<std::pair<std::string, std::string>>& FieldLister::sections() const {
  return impl_->sections;
}

void FieldLister::field(const std::string& key, int64_t& value, const FieldMeta& meta) {
  impl_->add(key, "int", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, double& value, const FieldMeta& meta) {
  impl_->add(key, "float", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, bool& value, const FieldMeta& meta) {
  impl_->add(key, "bool", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, std::string& value, const FieldMeta& meta) {
  impl_->add(key, "string", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, std::optional<int64_t>& value,
                        const FieldMeta& meta) {
  impl_->add(key, "int", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, std::optional<double>& value,
                        const FieldMeta& meta) {
  impl_->add(key, "float", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, std::vector<int64_t>& value,
                        const FieldMeta& meta) {
  impl_->add(key, "list of int", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, std::vector<std::string>& value,
                        const FieldMeta& meta) {
  impl_->add(key, "list of string", to_yaml(value), meta);
}
void FieldLister::field(const std::string& key, StringMap& value, const FieldMeta& meta) {
  impl_->add(key, "map of string", to_yaml(value), meta);
}
void FieldLister::json_field(const std::string& key, std::string& value, const FieldMeta& meta) {
  impl_->add(key, "JSON", json_to_yaml(value), meta);
}

void FieldLister::begin_section(const std::string& name, const std::string& doc) {
  const std::string path = impl_->path_of(name);
  impl_->stack.push_back(name);
  for (auto& [known, text] : impl_->sections) {
    if (known != path) continue;
    if (text.empty()) text = doc;
    return;
  }
  impl_->sections.emplace_back(path, doc);
}

void FieldLister::end_section() {
  SLX_CHECK(!impl_->stack.empty(), "end_section without begin_section");
  impl_->stack.pop_back();
}

}  // namespace slimexx::config
