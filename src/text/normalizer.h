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
  // Without a spec the normalizer changes nothing.
  static Normalizer build(const std::optional<TokenizerSpec>& spec);
  Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  // Returns the normalized form of `text` (valid UTF-8): a view of `text` itself if nothing
  // changes, otherwise of `storage`. Throws Error(kInput) naming the step if the text exceeds
  // limit_of_growth.
  std::string_view apply(std::string_view text, std::string& storage) const;

  bool maps_to_bytes() const;  // whether it maps to the alphabet of byte-level BPE

 private:
  struct Step;
  static void add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps);
  std::vector<Step> steps_;
};

}  // namespace slimexx::text
