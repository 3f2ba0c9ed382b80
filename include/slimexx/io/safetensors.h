// The safetensors format: an 8-byte little-endian header length, a JSON header, the tensors' bytes.
// The reader applies the reference implementation's rules (offsets contiguous from 0 and covering
// the buffer, checked shape products, header of at most 100 MB, no duplicate names) and reads
// tensors by pread, whole or by ranges.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slimexx/base/file.h"
#include "slimexx/tensor/dtype.h"

namespace slimexx::io {

struct TensorEntry {
  std::string name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte range within the data section
  int64_t num_elements() const;
};

class SafetensorsFile {
 public:
  // Throws Error(kInput) naming path, byte offset or tensor.
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // by ascending offset
  // Null if absent; throws Error(kInput) if the tensor's dtype is not in DType.
  const TensorEntry* find(const std::string& name) const;
  // Tensors with dtypes of the format that DType lacks (F4, U32 ...): name -> dtype. They are not
  // in entries().
  const std::map<std::string, std::string>& unsupported() const { return unsupported_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Reads elements [begin, end) of the flattened tensor, in the file's dtype.
  void read(const TensorEntry& entry, int64_t begin, int64_t end, void* destination) const;

 private:
  InputFile file_;
  uint64_t data_offset_ = 0;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_, unsupported_;
};

// Sorts into the reference implementation's order: by dtype, widest first, then by name. A file in
// this order with at most one metadata key is byte-identical to the reference's.
void sort_entries(std::vector<TensorEntry>& entries);

class ContentHash;

// Writes a file tensor by tensor: first all entries (this class computes begin and end), then the
// data in the same order. The complete file appears on finish().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> entries,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  // The next bytes of the data section; tensors may be written in several calls.
  void write(const void* data, uint64_t n_bytes);
  void finish();                     // throws if the data does not fill the entries
  std::string content_hash() const;  // XXH3-128 of all bytes written so far, hex
  uint64_t size_bytes() const;       // size of the file so far

 private:
  void put(const char* data, uint64_t n_bytes);
  std::string path_;
  OutputFile file_;
  std::unique_ptr<ContentHash> hash_;
  uint64_t expected_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace slimexx::io
