// Converts the weights of a Hugging Face folder to FP8 (e4m3), file by file, in bounded memory. The
// folder has the layout that transformers, SGLang, vLLM and slime read.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/tensor/float8.h"

namespace slimexx::io {

enum class Fp8Strategy : uint8_t {
  kBlock,    // a scale per block: X.weight_scale_inv [ceil(N/rows), ceil(K/columns)]
  kChannel,  // a scale per row: X.weight_scale [N,1]
  kTensor,   // one scale: X.weight_scale [1]
};

struct Fp8Options {
  Fp8Strategy strategy = Fp8Strategy::kBlock;
  int64_t block_rows = 128, block_columns = 128;  // kBlock only
  tensor::F8ScaleRule scale_rule = tensor::F8ScaleRule::kPowerOfTwo;
  bool operator==(const Fp8Options&) const = default;
};

// Whether a tensor becomes FP8: a matrix named "...weight", except embeddings, heads, routers,
// norms and other tensors that serving engines keep unquantised.
bool is_fp8_weight(const TensorEntry& entry);

// Computes q[rows,columns] and the scales of the matrix x[rows,columns]. Fp8Strategy gives the
// shape of `scales`. kTensor: `tensor_amax` is the largest magnitude of the whole tensor.
void quantise_rows(const Fp8Options& options, const float* x, int64_t rows, int64_t columns,
                   float tensor_amax, uint8_t* q, float* scales);

struct Fp8Summary {
  int64_t files = 0, skipped_files = 0;    // skipped: finished by an earlier, interrupted call
  int64_t quantised = 0, kept = 0;         // tensors in the files that this call wrote
  std::vector<std::string> with_nan = {};  // tensors with blocks that hold a NaN or an infinity
};

// One conversion of `folder` into the folder `save`. Calls are made in the order below, by several
// writers (ranks) with a barrier between the stages. A folder that an interrupted conversion with
// the same options left is continued: finished files stay.
class Fp8Conversion {
 public:
  // Throws Error(kInput) if tensors of the folder are quantised already.
  Fp8Conversion(const HfFolder& folder, std::string save, const Fp8Options& options);
  // Called by one writer. Throws Error(kUsage) if `save` holds other files, or a conversion of
  // another folder or with other options.
  void create();
  // Called by all writers: converts every count-th file, starting with file `index`, on the threads
  // of parallel_for.
  Fp8Summary write(int index, int count, bool show_progress);
  // Called by one writer: writes side files, config.json with quantization_config, and the index.
  void commit();

 private:
  struct File {
    std::string name, header;
    std::vector<TensorEntry> entries;  // of the new file, in its order
  };
  bool is_finished(const File& file) const;
  void write_file(const File& file, Fp8Summary& summary) const;
  Json quantization_config() const;
  Json identity() const;
  std::string path_of(const std::string& name) const;

  const HfFolder& folder_;
  std::string save_;
  Fp8Options options_;
  std::vector<File> files_;
};

}  // namespace slimexx::io
