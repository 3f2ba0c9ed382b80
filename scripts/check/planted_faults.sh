#!/usr/bin/env bash
# Tests scripts/check.sh: plants one fault of each kind in a small tree and expects exactly that fault, and none without
# it.
set -euo pipefail
shopt -s lastpipe  # "... | plant" must set variables of this shell
repository=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
git init -q .
mkdir -p scripts/check src/{base,ops,io,rl} include/slimexx/ops kernels/ops tests/ops
cp "$repository/scripts/check.sh" scripts/
cp "$repository"/scripts/check/*.awk scripts/check/
cp "$repository/.clang-format" .
printf '# excuses\n' >scripts/check/allow.txt

printf 'slx_add_module(ops\n  SOURCES sum.cpp  # the only one\n  DEPENDS base)\n' >src/ops/CMakeLists.txt
printf '#include "ops/sum.h"\n\n#include "slimexx/base/error.h"\n' >src/ops/sum.cpp
printf '#include <fmt/core.h>\n' >include/slimexx/ops/ops.h

failed=0
# expect NAME RULE...: check.sh must report exactly these rules, in any order.
expect() {
  local name=$1 wanted found
  shift
  wanted=$(printf '%s\n' "$@" | sort)
  found=$(SLX_BINARY= scripts/check.sh 2>&1 | grep -v '^check:' | cut -d' ' -f1 | sort || true)
  if [[ $wanted != "$found" ]]; then
    printf '%s: wanted {%s}, found {%s}\n' "$name" "${wanted//$'\n'/ }" "${found//$'\n'/ }"
    failed=1
  fi
}
# plant PATH RULE... <content: writes a file whose content must violate exactly these rules.
plant() {
  local path=$1
  shift
  mkdir -p "$(dirname "$path")"
  cat >"$path"
  expect "$path" "$@"
  rm "$path"
}
include() { printf '#include %s\n' "$@"; }
lines() { for ((i = 0; i < $1; i++)); do printf 'int x%d;\n' "$i"; done; }
body() { printf 'void f() {\n'; for ((i = 0; i < $1; i++)); do printf '  g(%d);\n' "$i"; done; printf '}\n'; }

expect "clean tree"
include '"slimexx/rl/sample.h"' | plant include/slimexx/ops/upward.h layer
include '"slimexx/dist/ranges.h"' | plant include/slimexx/io/sibling.h layer
include '"base/private.h"' | plant include/slimexx/ops/private.h layer
include '"../io/byte_source.h"' | plant src/ops/sideways.h layer
include '"slimexx/kernels/gemm.h"' | plant src/io/caller.h layer
include '"slimexx/ops/ops.h"' | plant kernels/ops/softmax.cu layer
include '<mpi.h>' | plant src/ops/ranks.h banned
include '<nccl.h>' | plant src/ops/exchange.h banned
include '<fmt/core.h>' | plant kernels/ops/print.cu banned
include '<nlohmann/json.hpp>' | plant include/slimexx/ops/json.h banned
include '<yaml-cpp/yaml.h>' | plant src/io/yaml.h banned
printf '#include <vector>\nstd::vector<int64_t> list();\n' | plant src/ops/counts.h include
lines 251 | plant src/ops/long.h size
lines 601 | plant src/ops/long.inl length
lines 600 | plant src/ops/long.inl
lines 400 | plant src/ops/long.inl
for i in {1..25}; do printf 'int x;\n' >"src/io/file$i.h"; done
expect "25 files"
printf 'int x;\n' | plant src/io/one_more.h folder
rm src/io/file*.h
lines 201 | plant src/rl/training/loop.cpp list size
body 79 | plant src/ops/body.inl size
body 78 | plant src/ops/body.inl
{ printf 'class A {\n public:\n'; body 79 | sed 's/^/  /'; printf '};\n'; } | plant src/ops/member.inl size
# members CLASS_OR_STRUCT N: one with N data members in pairs, and more functions.
members() {
  printf '%s A {\n public:\n  A(int a,\n    int b);\n' "$1"
  for ((i = 0; i < $2; i += 2)); do printf '  std::map<int, int> x%d, y%d = {1, 2};\n  int f%d() const;\n' "$i" "$i" "$i"; done
  printf '};\n'
}
members class 22 | plant src/ops/wide.inl members
members class 20 | plant src/ops/wide.inl
members struct 22 | plant src/ops/wide.inl
printf 'int x;\n' | plant src/ops/string_util.h name
printf 'int x;\n' | plant src/ops/Norm.h name
printf 'int x;\n' | plant tests/ops/s_um.h name
printf 'class FileManager {};\n' | plant src/ops/files.h name
printf 'int x;\n' | plant src/ops/forgotten.cpp list
printf 'int x;\n' | plant tests/ops/forgotten_test.cpp list
printf 'slx_add_module(io SOURCES\n  DEPENDS base rl)\n' | plant src/io/CMakeLists.txt layer
printf '// %s: later\n' TODO | plant src/ops/later.h todo
printf '// %s(#7): later\n' TODO | plant src/ops/later.h
printf 'text \n' | plant notes.md space
printf 'Data lie in %s/you/data.\n' /home | plant notes.md path
# Without clang-format-14 the format is not checked, and check.sh says so.
if command -v clang-format-14 >/dev/null; then
  printf 'int  x ;\n' | plant src/ops/layout.h format
fi
printf 'size src/ops/nothing.h it was long once\n' >>scripts/check/allow.txt
expect "excuse without use" allow
sed -i 's/nothing/long/' scripts/check/allow.txt
lines 251 | plant src/ops/long.h

[[ $failed -eq 0 ]] && echo "every planted fault was found, and nothing else"
exit "$failed"
