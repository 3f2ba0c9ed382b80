// Writes TensorBoard event files: TFRecord frames around protobuf Event messages. Both formats are
// stable, so this code encodes them without a protobuf library.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slimexx::observe {

// CRC-32C (Castagnoli) and TFRecord's masked form of it.
uint32_t crc32c(std::string_view data);
uint32_t masked_crc32c(std::string_view data);

// TFRecord: u64 length, masked CRC of the length, payload, masked CRC of the payload;
// little-endian.
std::string frame_record(std::string_view payload);

// Event{wall_time, file_version: "brain.Event:2"}, the first record of every file.
std::string encode_version_event(double wall_time);
// Event{wall_time, step, summary{value{tag, simple_value}...}}.
std::string encode_scalars_event(double wall_time, int64_t step,
                                 const std::vector<std::pair<std::string, double>>& values);

// Event{wall_time, step, summary{value{tag, metadata{plugin "text"}, tensor{DT_STRING}}}}:
// shows `markdown`, which must be UTF-8, on TensorBoard's text page.
std::string encode_text_event(double wall_time, int64_t step, std::string_view tag,
                              std::string_view markdown);

// Event{wall_time, step, session_log{START}}: tells TensorBoard to forget earlier values of steps
// >= step.
std::string encode_restart_event(double wall_time, int64_t step);

// An event file open for appending. Each call is a single write, so that a live TensorBoard only
// sees complete records.
class EventFile {
 public:
  explicit EventFile(std::string path);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();
  void append(std::string_view event);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace slimexx::observe
