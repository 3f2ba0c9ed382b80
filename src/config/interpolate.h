// ${path.to.key} and ${env:NAME:-default} in scalars. "$${" stands for a literal "${".
#pragma once
#include <string>
#include <string_view>

#include "config/tree.h"

namespace slimexx::config {

// Replaces all references in the tree; faults (unknown key, unset variable, a circle) are collected
// and leave the scalar null.
void interpolate(Tree& tree);

// Only ${env:...}, for the paths under `defaults:`.
std::string interpolate_environment(const Tree& tree, const Node& scalar);

// `text` such that interpolation gives it back unchanged.
std::string escape_references(std::string_view text);

}  // namespace slimexx::config
