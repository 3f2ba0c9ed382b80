#!/usr/bin/env bash
# Prints the C++ compiler for builds that need clang: CXX if that is clang, otherwise the newest clang++ that has its
# runtime libraries for sanitizers and libFuzzer.
set -euo pipefail
if [[ ${CXX:-} == *clang++* ]]; then
  echo "$CXX"
  exit
fi
for name in $(compgen -c clang++ | grep -xE 'clang\+\+(-[0-9]+)?' | sort -Vru); do
  for file in "$("$name" -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a; do
    if [[ -e $file ]]; then
      echo "$name"
      exit
    fi
  done
done
echo "find_clang.sh: found no clang++ with its runtime libraries; scripts/install_deps.sh --dev installs one" >&2
exit 3
