#!/usr/bin/env bash
# Checks that the tests find silent errors: in a copy of the tree, plants one fault at a time that makes a model compute
# something else, builds the tests and expects some to fail. Prints how many fail, and up to three of their names.
#
#   scripts/plant_faults.sh [NAME ...]      default: all of them
#
# SLX_PRESET (ci): preset for the copy. Takes some minutes for the first fault, then one or two per fault.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
  exit 0
fi
preset=${SLX_PRESET:-ci}
jobs=${SLX_JOBS:-$(nproc)}
tests='^(ops|model|train)\.'
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$copy"
cd "$copy"
git init -q . && git add -A && git -c user.name=tests -c user.email=tests@localhost commit -qm copy

build() { cmake --build --preset "$preset" -j "$jobs" --target tests_ops tests_model tests_train >build.log 2>&1; }
run() { ctest --test-dir "build/$preset" -R "$tests" -E mpi_ranks -j "$jobs" --timeout 300 >tests.log 2>&1; }

cmake --preset "$preset" >configure.log
build || { tail -n 30 build.log; exit 1; }
run || { echo "tests fail before any fault is planted:"; grep -E '\(Failed\)' tests.log | head; exit 1; }
echo "without a fault: $(grep -cE 'Passed +[0-9.]+ sec' tests.log) tests pass"

wanted=("$@")
unseen=0
# plant NAME FILE SED: FILE changed by SED must compile and fail tests.
plant() {
  local name=$1 file=$2 change=$3
  [[ ${#wanted[@]} -eq 0 || " ${wanted[*]} " == *" $name "* ]] || return 0
  sed -i -E "$change" "$file"
  if git diff --quiet -- "$file"; then
    echo "$name: $file no longer has the line that the fault changes; mend scripts/plant_faults.sh"
    unseen=1
    return 0
  fi
  if ! build; then
    echo "$name: does not compile"
    grep -m 3 'error' build.log || true
    unseen=1
  elif run; then
    echo "$name: no test fails"
    unseen=1
  else
    printf '%s: %d tests fail, e.g. %s\n' "$name" "$(grep -cE '\(Failed\)' tests.log)" \
      "$(sed -nE 's/.*[0-9]+ - ([^ ]+).*\(Failed\).*/\1/p' tests.log | awk -F'[./]' '!seen[$1 $2 $3]++' | head -n 3 | paste -sd' ')"
  fi
  git checkout -q -- "$file"
}

router=src/ops/cpu/router.cpp
plant bias_in_weights $router 's|scores\[static_cast<size_t>\(own\[j\]\)\] / sum|(scores[static_cast<size_t>(own[j])] + (bias.defined() ? bias.f32()[own[j]] : 0.0f)) / sum|'
plant tie_to_the_higher_expert $router 's|std::max_element\(choice, choice \+ rule.num_experts\);|std::max_element(choice, choice + rule.num_experts, [](float a, float b) { return a <= b; });|'
plant no_scaling_factor $router 's| / sum \* rule.scaling_factor;| / sum;|'
plant always_normalized $router 's|rule\.normalized|true|'
plant never_normalized $router 's|rule\.normalized|false|'
plant swapped_rotary_style src/ops/cpu/rotary.cpp 's|style == RotaryStyle::kHalfSplit|style != RotaryStyle::kHalfSplit|'
plant mtp_trains_the_head src/train/passes/mtp_pass.cpp 's|g\{gradients_.mtp\[k\].final_norm, \{\}\}|g{gradients_.mtp[k].final_norm, gradients_.head.lm_head}|'
plant index_sharing_off_by_one src/model/config/index_config.cpp 's|std::max<int64_t>\(i - offset \+ 1, 0\)|std::max<int64_t>(i - offset, 0)|'
exit "$unseen"
