// A Hugging Face checkpoint folder: config.json, *.safetensors with or without an index, tokenizer
// and generation files.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/safetensors.h"

namespace slimexx::io {

// An opened folder with its tensors by name. Shards are the files that the index names (without an
// index: all), and mtp.safetensors. Throws Error(kInput) for an index that names missing files or
// tensors, paths outside the folder, tensors in two shards, LFS pointer files, and a
// single-file model that disagrees with the sharded one. Copies share the open files: pointers
// from find() stay valid while any copy lives.
class HfFolder {
 public:
  static HfFolder open(const std::string& directory);
  // Opens the folder for its configuration only; the tensor list stays empty.
  static HfFolder open_without_weights(const std::string& directory);
  const std::string& directory() const { return directory_; }
  const Json& config() const { return *config_; }  // config.json
  struct Located {
    const SafetensorsFile* file;
    const TensorEntry* entry;
  };
  bool has_tensors() const { return !shards_->tensors.empty(); }
  std::vector<std::string> tensor_names() const;       // sorted
  const Located* find(const std::string& name) const;  // null if absent

  // Token ids that end generation: eos_token_id (int or list) of generation_config.json, otherwise
  // of config.json; empty if neither has it.
  std::vector<int32_t> eos_token_ids() const { return eos_tokens().ids; }
  struct EosTokens {
    std::string file = {};  // the file that lists the ids
    std::vector<int32_t> ids = {};
  };
  EosTokens eos_tokens() const;

 private:
  struct Shards {
    std::vector<std::unique_ptr<SafetensorsFile>> files;
    std::map<std::string, Located> tensors;
  };
  void add_shard(const std::string& name);
  std::string directory_;
  std::shared_ptr<Json> config_;
  std::shared_ptr<Shards> shards_ = std::make_shared<Shards>();
};

struct HfTensor {
  std::string name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
  // Stores elements [begin, end) at `destination`, in `dtype`; called in order during the write.
  std::function<void(int64_t begin, int64_t end, void* destination)> read;
};

// Writes a folder that transformers, vLLM and SGLang load. Tensors are sharded by max_shard_bytes
// (with model.safetensors.index.json if there is more than one file); the metadata is {"format":
// "pt"}. Every other top-level file of `template_directory` (config.json, tokenizer, chat template,
// generation config, licence ...) is copied verbatim; `config_overrides` replaces keys of
// config.json. If `shards` is not empty, it maps tensor names to file names and replaces
// max_shard_bytes, for a byte-identical round trip.
struct HfWriteOptions {
  std::string template_directory;
  std::map<std::string, std::string> shards;
  Json* config_overrides = nullptr;
  // The tensors are not quantised even if the template's are: drop quantization_config from
  // config.json, or other loaders would treat them as quantised.
  bool drops_quantization = false;
  int64_t max_shard_bytes = int64_t{5} << 30;
};
void write_hf_folder(const std::string& directory, const std::vector<HfTensor>& tensors,
                     const HfWriteOptions& options);

// Copies config.json, tokenizer*, generation config and the like (all regular top-level files that
// are not weights or an index) from one folder to another.
void copy_side_files(const std::string& from, const std::string& to);

}  // namespace slimexx::io
