#include "slimexx/sample/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/io/lines.h"

namespace slimexx::sample {
namespace {

constexpr uint64_t kMaxSampleBytes = uint64_t{256}
                                     << 20;  // a line of a dump has several numbers per token

constexpr double kMaxTemperature = 1e9;  // far above useful ones; fits f32

[[noreturn]] void fail(const std::string& what, const std::string& where) {
  throw Error(ErrorCode::kInput, what, "see docs/howto/dataset.md for the format of rollout dumps",
              where);
}

template <class T>
std::vector<T> read_array(const Json& object, const char* key, std::optional<int64_t> length,
                          const std::string& where) {
  std::vector<T> values;
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return values;
  if (!it->is_array()) fail(fmt::format("\"{}\" must be an array", key), where);
  if (length && static_cast<int64_t>(it->size()) != *length) {
    fail(fmt::format("\"{}\" has {} entries, but response_length is {}", key, it->size(), *length),
         where);
  }
  for (const auto& v : *it) {
    const bool fits = std::is_integral_v<T> ? v.is_number_integer() : v.is_number();
    if (!fits) fail(fmt::format("\"{}\" holds something that is not a number", key), where);
    const double number = v.get<double>();
    if (std::is_same_v<T, int32_t> && !(number >= 0 && number <= INT32_MAX))
      fail(fmt::format("\"{}\" holds {}", key, number), where);
    // The limit is halfway from the largest f32 to 2^128: smaller numbers round to a finite f32.
    if (std::is_same_v<T, float> && !(std::abs(number) < 0x1.ffffffp127))
      fail(fmt::format("\"{}\" holds {}, which does not fit in float32", key, number), where);
    if (std::is_same_v<T, uint8_t> && number != 0 && number != 1)
      fail(fmt::format("\"{}\" holds {}, but must hold 0 or 1", key, number), where);
    values.push_back(static_cast<T>(number));
  }
  return values;
}

bool read_flag(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return false;
  if (!it->is_boolean()) fail(fmt::format("\"{}\" must be true or false", key), where);
  return it->get<bool>();
}

// The shortest decimal that reads back as the same float; NaN and Inf as null.
Json float_to_json(float value) {
  // The reader refuses null, so a non-finite value is never read back as a number.
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(format_float(value).c_str(), nullptr);
}

Json floats_to_json(const std::vector<float>& values) {
  Json array = Json::array();
  for (float v : values) array.push_back(float_to_json(v));
  return array;
}

std::optional<float> read_temperature(const Json& object, const std::string& where) {
  const auto it = object.find("temperature");
  if (it == object.end() || it->is_null()) return std::nullopt;
  const double value = json_number(object, "temperature", where);
  if (!(value >= 0 && value <= kMaxTemperature))
    fail(fmt::format("\"temperature\" is {}, but must be at least 0", value), where);
  return static_cast<float>(value);
}

std::map<std::string, double> read_values(const Json& object, const std::string& where) {
  std::map<std::string, double> values;
  const auto it = object.find("values");
  if (it == object.end() || it->is_null()) return values;
  if (!it->is_object()) fail("\"values\" must be an object of numbers", where);
  for (const auto& [name, value] : it->items()) {
    if (!value.is_number()) fail("\"values\" holds something that is not a number", where);
    values[name] = value.get<double>();
  }
  return values;
}

SampleStatus parse_status(const std::string& text, const std::string& where) {
  for (SampleStatus s :
       {SampleStatus::kCompleted, SampleStatus::kTruncated, SampleStatus::kAborted}) {
    if (text == status_name(s)) return s;
  }
  fail(fmt::format("\"status\" is \"{}\", but must be completed, truncated or aborted", text),
       where);
}

// Copies raw bytes in host byte order, because both ends are the same program.
class ByteWriter {
 public:
  template <class T>
  void one(const T& value) requires std::is_trivially_copyable_v<T> {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class C>
  void all(const C& values) {
    one(static_cast<uint64_t>(values.size()));
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  }
  void one(const std::optional<float>& value) { one(value.value_or(-1.0f)); }
  void all(const std::map<std::string, double>& values) {
    one(static_cast<uint64_t>(values.size()));
    for (const auto& [name, value] : values) all(name), one(value);
  }
  std::string bytes;
};

class ByteReader {
 public:
  explicit ByteReader(const std::string& bytes) : bytes_(bytes) {}
  bool at_end() const { return position_ == bytes_.size(); }
  template <class T>
  void one(T& value) requires std::is_trivially_copyable_v<T> {
    take(&value, sizeof(T));
  }
  void one(std::optional<float>& value) {  // negative means empty
    float number = 0;
    one(number);
    value = number < 0 ? std::nullopt : std::optional(number);
  }
  template <class C>
  void all(C& values) {
    uint64_t n = 0;
    one(n);
    SLX_CHECK_LE(n, bytes_.size());
    values.resize(n);
    take(values.data(), n * sizeof(values[0]));
  }
  void all(std::map<std::string, double>& values) {
    uint64_t n = 0;
    one(n);
    for (uint64_t i = 0; i < n; ++i) {
      std::string name;
      all(name), one(values[name]);
    }
  }

 private:
  void take(void* destination, size_t n) {
    SLX_CHECK_LE(position_ + n, bytes_.size());
    if (n > 0) std::memcpy(destination, bytes_.data() + position_, n);
    position_ += n;
  }
  const std::string& bytes_;
  size_t position_ = 0;
};

// The fields to exchange, in one order for writing and reading.
template <class Bytes, class AnySample>
void walk_fields(Bytes& b, AnySample& s) {
  b.one(s.group), b.one(s.sample), b.one(s.rollout), b.one(s.response_length), b.one(s.reward);
  b.one(s.status), b.one(s.temperature), b.one(s.cached_tokens), b.all(s.weight_versions);
  b.all(s.tokens), b.all(s.loss_mask), b.all(s.rollout_log_probs), b.all(s.old_log_probs);
  b.all(s.ref_log_probs), b.all(s.prompt_text), b.all(s.response_text), b.all(s.label);
  b.all(s.reason), b.all(s.prediction), b.all(s.metadata);
  b.one(s.grader_failed), b.all(s.values);
}

}  // namespace

std::string_view status_name(SampleStatus status) {
  switch (status) {
    case SampleStatus::kCompleted:
      return "completed";
    case SampleStatus::kTruncated:
      return "truncated";
    case SampleStatus::kAborted:
      return "aborted";
  }
  return "";
}

int64_t Sample::num_trained_tokens() const {
  int64_t sum = 0;
  for (uint8_t m : loss_mask) sum += m;
  return sum;
}

std::vector<SampleGroup> group_samples(std::span<const Sample> samples) {
  std::map<int64_t, size_t> position;
  std::vector<SampleGroup> groups;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].grader_failed) continue;
    const auto [it, is_new] = position.emplace(samples[i].group, groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(i);
  }
  return groups;
}

Json sample_to_json(const Sample& s, bool with_tokens) {
  Json object;
  object["group"] = s.group;
  object["sample"] = s.sample;
  object["rollout"] = s.rollout;
  object["response_length"] = s.response_length;
  object["reward"] = s.reward;
  if (with_tokens) {
    object["tokens"] = s.tokens;
    object["loss_mask"] = s.loss_mask;
    for (const auto& [key, values] : {std::pair("rollout_log_probs", &s.rollout_log_probs),
                                      {"old_log_probs", &s.old_log_probs},
                                      {"ref_log_probs", &s.ref_log_probs},
                                      {"advantages", &s.advantages}})
      if (!values->empty()) object[key] = floats_to_json(*values);
  }
  if (s.advantage) object["advantage"] = *s.advantage;
  object["status"] = status_name(s.status);
  object["label"] = s.label;
  if (!s.prompt_text.empty()) object["prompt"] = s.prompt_text;
  object["response"] = s.response_text;
  if (!s.reason.empty()) object["reason"] = s.reason;
  if (!s.prediction.empty()) object["prediction"] = s.prediction;
  if (s.grader_failed) object["grader_failed"] = true;
  if (!s.values.empty()) object["values"] = s.values;
  for (const WeightSpan& span : s.weight_versions)
    object["weight_versions"].push_back({span.end, span.version});
  if (s.temperature) object["temperature"] = float_to_json(*s.temperature);
  if (!s.metadata.empty()) object["metadata"] = Json::parse(s.metadata);
  return object;
}

std::vector<WeightSpan> read_weight_versions(const Json& object, int64_t response_length,
                                             const std::string& where) {
  const auto it = object.find("weight_versions");
  if (it == object.end() || it->is_null()) {
    if (!object.contains("weight_version")) return {};
    return {{response_length, json_int(object, "weight_version", where)}};
  }
  std::vector<WeightSpan> spans;
  const auto is_span = [&](const Json& pair) {
    if (!pair.is_array() || pair.size() != 2) return false;
    if (!pair[0].is_number_integer() || !pair[1].is_number_integer()) return false;
    spans.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
    return spans.back().end > (spans.size() > 1 ? spans[spans.size() - 2].end : 0);
  };
  if (!it->is_array() || !std::ranges::all_of(*it, is_span) ||
      (!spans.empty() && spans.back().end != response_length)) {
    fail(
        "\"weight_versions\" must be a list of [end, version] whose ends ascend to "
        "response_length",
        where);
  }
  return spans;
}

Sample sample_from_json(const Json& object, const std::string& where) {
  Sample s;
  const auto optional_text = [&](const char* key) {
    const auto it = object.find(key);
    if (it == object.end() || it->is_null()) return std::string();
    return it->is_string() ? it->get<std::string>() : it->dump();
  };
  s.group = json_int(object, "group", where);
  s.sample = json_int(object, "sample", where);
  s.rollout = object.contains("rollout") ? json_int(object, "rollout", where) : 0;
  s.tokens = read_array<int32_t>(object, "tokens", std::nullopt, where);
  s.response_length = json_int(object, "response_length", where);
  if (s.response_length < 1 || s.response_length >= static_cast<int64_t>(s.tokens.size())) {
    fail(fmt::format("response_length is {} of {} tokens, but prompt and response need at least "
                     "one token each",
                     s.response_length, s.tokens.size()),
         where);
  }
  s.loss_mask = read_array<uint8_t>(object, "loss_mask", s.response_length, where);
  if (s.loss_mask.empty()) s.loss_mask.assign(static_cast<size_t>(s.response_length), 1);
  s.rollout_log_probs = read_array<float>(object, "rollout_log_probs", s.response_length, where);
  s.old_log_probs = read_array<float>(object, "old_log_probs", s.response_length, where);
  s.ref_log_probs = read_array<float>(object, "ref_log_probs", s.response_length, where);
  if (object.contains("advantage")) s.advantage = json_number(object, "advantage", where);
  s.reward = object.contains("reward") || !s.advantage ? json_number(object, "reward", where) : 0;
  s.status = object.contains("status") ? parse_status(json_string(object, "status", where), where)
                                       : SampleStatus::kCompleted;
  s.label = optional_text("label");
  s.prompt_text = optional_text("prompt");
  s.response_text = optional_text("response");
  s.reason = optional_text("reason");
  s.prediction = optional_text("prediction");
  s.values = read_values(object, where);
  s.grader_failed = read_flag(object, "grader_failed", where);
  if (s.grader_failed) s.loss_mask.assign(s.loss_mask.size(), 0);
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && !metadata->is_null()) {
    if (!metadata->is_object()) fail("\"metadata\" must be an object", where);
    s.metadata = metadata->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  s.weight_versions = read_weight_versions(object, s.response_length, where);
  s.temperature = read_temperature(object, where);
  return s;
}

void save_rollout(const std::string& path, const std::vector<Sample>& samples) {
  io::LineWriter writer(path);
  for (const auto& sample : samples) {
    writer.write(sample_to_json(sample).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  writer.finish();
}

std::vector<Sample> load_rollout(const std::string& path) {
  io::LineReader reader(path, kMaxSampleBytes);
  std::vector<Sample> samples;
  for (Json object; io::next_json_object(reader, object);)
    samples.push_back(sample_from_json(object, reader.where()));
  if (samples.empty()) fail("the rollout dump is empty", path);
  return samples;
}

std::string pack_samples(const std::vector<Sample>& samples) {
  ByteWriter writer;
  for (const Sample& s : samples) walk_fields(writer, s);
  return std::move(writer.bytes);
}

std::vector<Sample> unpack_samples(const std::string& bytes) {
  std::vector<Sample> samples;
  for (ByteReader reader(bytes); !reader.at_end();) walk_fields(reader, samples.emplace_back());
  return samples;
}

}  // namespace slimexx::sample
