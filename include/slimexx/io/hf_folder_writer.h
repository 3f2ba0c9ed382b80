// Writing one Hugging Face folder from several ranks.
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

// A folder as write_hf_folder makes it, filled by several writers at once (FilledFile), each its
// own elements. All of them make it from the same list and options; HfTensor::read is not used. The
// order of calls is create by one, write and flush by all, commit by one: the caller lets every
// writer end a stage before any begins the next.
class HfFolderWriter {
 public:
  HfFolderWriter(std::string directory, const std::vector<HfTensor>& tensors,
                 HfWriteOptions options);
  HfFolderWriter(const HfFolderWriter&) = delete;
  HfFolderWriter& operator=(const HfFolderWriter&) = delete;
  ~HfFolderWriter();  // the one that created removes what was not committed
  // Makes the folder and the files, headers in place, under names that are not yet the final ones.
  // Throws Error(kUsage) if the folder has weights already or is the template's.
  void create();
  // Elements [begin, end) of a tensor, in its dtype.
  void write(const std::string& tensor, int64_t begin, int64_t end, const void* data);
  void flush();
  uint64_t written_bytes() const { return written_bytes_; }  // of tensors, by this writer
  // `written_by_all` is the sum of written_bytes: throws Error(kRun) if that is not all there is.
  // The files get their names; index and side files are written.
  void commit(uint64_t written_by_all);

 private:
  struct File {
    std::string name, header;
    std::vector<TensorEntry> entries;  // as they stand in the file
    std::unique_ptr<FilledFile> open = {};
  };
  struct Place {
    size_t file = 0, entry = 0;
  };
  std::string path_of(const File& file) const;  // while it is filled
  std::string directory_;
  HfWriteOptions options_;
  std::vector<File> files_;
  std::map<std::string, Place, std::less<>> places_;  // by tensor
  uint64_t written_bytes_ = 0;
  bool is_creator_ = false;
};
// Writes the elements of every tensor that are the share of writer `index` of `count`.
void write_share(HfFolderWriter& writer, const std::vector<HfTensor>& tensors, int index,
                 int count);

}  // namespace slimexx::io
