// Expands ${path.to.key} and ${env:NAME:-default} in scalars. "$${" is a literal "${".
#pragma once
#include <string>
#include <string_view>

#include "config/tree.h"

namespace slimexx::config {

// Replaces all references in the tree. Collects faults (unknown key, unset variable, cycle), which
// leave the scalar null.
void interpolate(Tree& tree);

// Expands only ${env:...}, for the paths under `defaults:`.
std::string interpolate_environment(const Tree& tree, const Node& scalar);

// Escapes `text` so that interpolation returns the original.
std::string escape_references(std::string_view text);

}  // namespace slimexx::config
