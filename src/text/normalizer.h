// The "normalizer" of tokenizer.json.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace slimexx::text {

class Normalizer {
 public:
  // No spec: changes nothing.
  static Normalizer build(const std::optional<TokenizerSpec>& spec);
  Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  // Returns `text`, valid UTF-8, normalized: a view of `text` itself if nothing changes, else of
  // `storage`. Throws Error(kInput) naming the step if the text grows out of proportion.
  std::string_view apply(std::string_view text, std::string& storage) const;

  bool maps_to_bytes() const;  // into the alphabet of byte-level BPE

 private:
  struct Step;
  static void add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps);
  std::vector<Step> steps_;
};

}  // namespace slimexx::text
