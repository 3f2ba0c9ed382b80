// Selects the parameters that a run trains, by their names on disk.
#pragma once
#include <string>
#include <vector>

namespace slimexx::model {

struct ModelSpec;

// Sets spec.frozen. A tensor on disk is frozen if a regular expression of `frozen` (PCRE2) matches
// anywhere in its name, or if `only` is not empty and none of its expressions matches. Parameters
// that a run never trains, such as indexers, stay frozen. Throws Error(kUsage) that names the key
// train.freeze_params_name_list or train.only_train_params_name_list: for a pattern that is
// malformed, backtracks without end, or matches no name; for a pattern that freezes only some
// tensors of a fused parameter (queries, keys and values); or if nothing is left to train.
void freeze_parameters(ModelSpec& spec, const std::vector<std::string>& frozen,
                       const std::vector<std::string>& only);

}  // namespace slimexx::model
