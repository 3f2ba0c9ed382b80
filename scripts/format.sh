#!/usr/bin/env bash
# Formats the named C++ and CUDA files; without names, the whole tree.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format-14 >/dev/null; then
  echo "scripts/format.sh: clang-format-14 is missing, and other versions format differently (pip install clang-format==14.0.6)" >&2
  exit 3
fi
if [[ $# -gt 0 ]]; then
  exec clang-format-14 -i "$@"
fi
git ls-files -co --exclude-standard -- '*.cpp' '*.h' '*.cu' '*.cuh' |
  while read -r file; do [[ -e $file ]] && printf '%s\n' "$file"; done |
  xargs clang-format-14 -i
