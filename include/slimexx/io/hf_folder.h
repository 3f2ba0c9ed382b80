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

// Opened folder; tensors are looked up by name over all shards: those that the index names, or all
// without one, and mtp.safetensors. Throws Error(kInput) for everything
// in the bad-input list: an index that names missing files or tensors, paths that leave the folder,
// tensors in two shards, LFS pointer files, both forms present and disagreeing. Copies share
// the open files: what find() returns lives as long as any of them.
class HfFolder {
 public:
  static HfFolder open(const std::string& directory);
  // config.json and its companions only: there are no tensors, whatever the folder holds.
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
  std::vector<std::string> shard_names() const;        // file names, in order

  // Token ids that end generation: generation_config.json's eos_token_id (int or list), else
  // config.json's; empty if neither says.
  std::vector<int32_t> eos_token_ids() const { return eos_tokens().ids; }
  struct EosTokens {
    std::string file = {};  // that names them
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
  // Gives elements [begin, end) in `dtype`; called in order while the file is written.
  std::function<void(int64_t begin, int64_t end, void* destination)> read;
};

// Writes a folder that transformers, vLLM and SGLang load: tensors sharded by max_shard_bytes (with
// model.safetensors.index.json if more than one file), metadata {"format": "pt"}, and every other
// top-level file of `template_directory` (config.json, tokenizer, chat template, generation config,
// licence ...) copied verbatim; `config_overrides` replaces keys of config.json. Shard boundaries:
// if `shards` is non-empty it maps tensor names to the file names to use (a byte-identical round
// trip).
struct HfWriteOptions {
  std::string template_directory;
  std::map<std::string, std::string> shards;
  Json* config_overrides = nullptr;
  // The tensors are plain whatever the template's were: config.json loses quantization_config, by
  // which other loaders would take them for quantised ones.
  bool drops_quantization = false;
  int64_t max_shard_bytes = int64_t{5} << 30;
};
void write_hf_folder(const std::string& directory, const std::vector<HfTensor>& tensors,
                     const HfWriteOptions& options);

// Copies config.json, tokenizer*, generation config and the like (all regular top-level files that
// are not weights or an index) from one folder to another.
void copy_side_files(const std::string& from, const std::string& to);

}  // namespace slimexx::io
