// Writes one Hugging Face folder from several ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/base/filled_file.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {

// Writes the folder of write_hf_folder from several writers at once (see FilledFile), each with its
// own elements. All writers are constructed with the same list and options; HfTensor::read is not
// called. Order: one writer calls create, all call write and flush, one calls commit. The caller
// puts a barrier between these stages.
class HfFolderWriter {
 public:
  HfFolderWriter(std::string directory, const std::vector<HfTensor>& tensors,
                 HfWriteOptions options);
  HfFolderWriter(const HfFolderWriter&) = delete;
  HfFolderWriter& operator=(const HfFolderWriter&) = delete;
  ~HfFolderWriter();  // removes uncommitted files if this writer called create
  // Makes the folder and, under temporary names, the files with their headers. Throws
  // Error(kUsage) if the folder already has weights or is the template folder.
  void create();
  // Writes elements [begin, end) of a tensor, given in its dtype.
  void write(const std::string& tensor, int64_t begin, int64_t end, const void* data);
  void flush();
  uint64_t written_bytes() const { return written_bytes_; }  // tensor data from this writer
  // Gives the files their final names and writes the index and side files. `written_by_all` is the
  // sum of written_bytes over all writers; throws Error(kRun) if it is not the size of all tensors.
  void commit(uint64_t written_by_all);

 private:
  struct File {
    std::string name, header;
    std::vector<TensorEntry> entries;  // in file order
    std::unique_ptr<FilledFile> open = {};
  };
  struct Place {
    size_t file = 0, entry = 0;
  };
  std::string path_of(const File& file) const;  // temporary path before commit
  std::string directory_;
  HfWriteOptions options_;
  std::vector<File> files_;
  std::map<std::string, Place, std::less<>> places_;  // by tensor
  uint64_t written_bytes_ = 0;
  bool is_creator_ = false;
};
// Writes one writer's share (`index` of `count`) of every tensor.
void write_share(HfFolderWriter& writer, const std::vector<HfTensor>& tensors, int index,
                 int count);

}  // namespace slimexx::io
