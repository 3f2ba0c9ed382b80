#include "observe/event_file.h"

#include <array>
#include <bit>
#include <cstring>

#include "observe/append_file.h"
#include "slimexx/base/error.h"

namespace slimexx::observe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <class T>
void append_fixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Wire types of protobuf: 0 varint, 1 fixed 64, 2 length-prefixed, 5 fixed 32.
void append_tag(std::string& out, int field, int wire_type) {
  append_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_tag(out, field, 2);
  append_varint(out, bytes.size());
  out += bytes;
}

std::string start_event(double wall_time) {
  std::string event;
  append_tag(event, 1, 1);  // Event.wall_time
  append_fixed(event, wall_time);
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xA282EAD8u; }

std::string frame_record(std::string_view payload) {
  std::string out;
  append_fixed(out, static_cast<uint64_t>(payload.size()));
  append_fixed(out, masked_crc32c(out));
  out += payload;
  append_fixed(out, masked_crc32c(payload));
  return out;
}

std::string encode_version_event(double wall_time) {
  std::string event = start_event(wall_time);
  append_bytes(event, 3, "brain.Event:2");  // Event.file_version
  return event;
}

std::string encode_scalars_event(double wall_time, int64_t step,
                                 const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    append_bytes(value, 1, tag);  // Summary.Value.tag
    append_tag(value, 2, 5);      // Summary.Value.simple_value
    append_fixed(value, static_cast<float>(number));
    append_bytes(summary, 1, value);  // Summary.value
  }
  std::string event = start_event(wall_time);
  append_tag(event, 2, 0);  // Event.step
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);  // Event.summary
  return event;
}

std::string encode_text_event(double wall_time, int64_t step, std::string_view tag,
                              std::string_view markdown) {
  std::string plugin;
  append_bytes(plugin, 1, "text");  // PluginData.plugin_name
  std::string metadata;
  append_bytes(metadata, 1, plugin);  // SummaryMetadata.plugin_data
  append_tag(metadata, 4, 0);         // SummaryMetadata.data_class
  append_varint(metadata, 2);         // DATA_CLASS_TENSOR
  std::string tensor;
  append_tag(tensor, 1, 0);                                  // TensorProto.dtype
  append_varint(tensor, 7);                                  // DT_STRING
  append_bytes(tensor, 2, std::string("\x12\x02\x08\x01"));  // tensor_shape{dim{size: 1}}
  append_bytes(tensor, 8, markdown);                         // string_val
  std::string value;
  append_bytes(value, 1, tag);       // Summary.Value.tag
  append_bytes(value, 8, tensor);    // Summary.Value.tensor
  append_bytes(value, 9, metadata);  // Summary.Value.metadata
  std::string summary;
  append_bytes(summary, 1, value);
  std::string event = start_event(wall_time);
  append_tag(event, 2, 0);  // Event.step
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);  // Event.summary
  return event;
}

std::string encode_restart_event(double wall_time, int64_t step) {
  std::string event = start_event(wall_time);
  append_tag(event, 2, 0);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 7, "\x08\x01");  // Event.session_log{status: START}
  return event;
}

EventFile::EventFile(std::string path) : path_(std::move(path)), fd_(open_append(path_)) {}

EventFile::~EventFile() { close_append(fd_); }

void EventFile::append(std::string_view event) {
  if (!is_in_place(fd_, path_))
    throw Error(ErrorCode::kEnvironment,
                "the file was removed or replaced while the run was writing to it",
                "do not change a run folder while its run is active", path_);
  append_all(fd_, path_, frame_record(event));
}

}  // namespace slimexx::observe
