#!/usr/bin/env bash
# Accounts for every flag of the recipes in configs/*.yaml. scripts/check/recipes.tsv lists the flags of their pages in
# slime's documentation and of slime's launch scripts; docs/reference/slime-flags.md maps each flag to a key. Either the
# key is set to the recipe's value, or a comment of the file names the value:
#   # later: --FLAG VALUE (why)      runs do not support the value yet
#   # needless: --FLAG VALUE         accepted without effect, or not needed here
#   # differs: --FLAG VALUE (why)    the file has another value on purpose
#   # script: --FLAG VALUE           slime's script has this value; the page has another value or none
# Then slimexx plans every file. Prints one line per fault; exits 1 if there is any.
#
#   scripts/check_recipes.sh               SLX_BINARY names the program (build/cpu/slimexx)
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${SLX_BINARY:-build/cpu/slimexx}
[[ $binary == /* ]] || binary=$PWD/$binary
faults=0
fault() {
  echo "$1"
  faults=$((faults + 1))
}

# Status and key of a flag from the reference page: "works train.lr".
status_of() {
  awk -F' *[|] *' -v flag="\`--$1\`" '$2 == flag { gsub(/`/, "", $4); print $3 "\t" $4; exit }' docs/reference/slime-flags.md
}

# The value of a key in a YAML file, from a block with one key per line or from a flow map.
value_in() {
  sed -e 's/[[:space:]]#.*$//' -e '/^#/d' "$1" | tr '{}' ',,' | tr '\n' ',' | sed 's/\[\([^]]*\)\]/\n[\1]\n/g' |
    awk -v RS='\n' '/^\[/ { gsub(/,/, ""); } { printf "%s", $0 }' | tr ',' '\n' |
    sed -n "s/^[[:space:]]*$2:[[:space:]]*\(.*[^[:space:]]\)[[:space:]]*$/\1/p" | tail -1
}

# 1, 1.0 and 1e0 are equal; on means true; values that begin with $ are paths, which equal any value.
same() {
  local have=$1 want=$2
  [[ $want == on ]] && want=true
  case $want in \$*) [[ -n $have ]] && return ;; esac
  [[ $have == "[$want]" || $have == "$want" ]] && return
  awk -v a="$have" -v b="$want" 'BEGIN { exit !(a ~ /^[-+0-9.eE]+$/ && b ~ /^[-+0-9.eE]+$/ && a + 0 == b + 0) }'
}

# The kind of the file's comment about a flag with this value: later, needless, differs, script, or empty.
kind_of() {
  awk -v flag="--$2" -v value="$3" '
    match($0, /^# (later|needless|differs|script): /) {
      kind = $2; sub(/:$/, "", kind)
      rest = substr($0, RLENGTH + 1)
      if (index(rest, flag " ") != 1) next
      rest = substr(rest, length(flag) + 2)
      if (rest == value || index(rest, value " (") == 1) { print kind; exit }
    }' "$1"
}

checked=0
while IFS=$'\t' read -r source recipe flag value; do
  [[ $source == \#* ]] && continue
  file=configs/$recipe.yaml
  checked=$((checked + 1))
  IFS=$'\t' read -r status key < <(status_of "$flag") || { fault "$recipe: --$flag is missing from docs/reference/slime-flags.md"; continue; }
  kind=$(kind_of "$file" "$flag" "$value")
  set_to=$([[ $key == *.* ]] && value_in "$file" "${key##*.}" || true)
  case $flag in
    eval-prompt-data) set_to="${value%% *} $(value_in "$file" "${value%% *}")"; value=$set_to ;;
    colocate) [[ $set_to == "true" ]] && value=true ;;
  esac
  case "$status:$kind:$source" in
    *:script:script | *:differs:* | later:later:* | "not needed here:needless:"*) ;;
    works::* | later::*) same "$set_to" "$value" || fault "$file: --$flag is $value in the recipe ($source), but ${key:-no key} is ${set_to:-not set}" ;;
    "not needed here::"*) fault "$file: --$flag $value ($source) has no comment: add \"# needless: --$flag $value\"" ;;
    *) fault "$file: --$flag $value ($source) is \"$status\" in docs/reference/slime-flags.md, but \"$kind\" in the comment of this file" ;;
  esac
done <scripts/check/recipes.tsv

# Comments of a file must name flags of the recipe; other comments are stale.
for file in configs/*.yaml; do
  recipe=$(basename "$file" .yaml)
  grep -qP "^[a-z]+\t$recipe\t" scripts/check/recipes.tsv || continue
  while read -r flag; do
    grep -qP "^[a-z]+\t$recipe\t$flag\t" scripts/check/recipes.tsv || fault "$file: a comment names --$flag, but the recipe has no such flag"
  done < <(sed -n 's/^# \(later\|needless\|differs\|script\): --\([a-z0-9-]*\) .*/\2/p' "$file")
done

# Each file must load and be planned: status 0, or 2 if the plan says that the run does not fit.
plan() {
  local status=0 text
  text=$("$binary" plan --config "configs/$1.yaml" "${@:2}" 2>&1) || status=$?
  [[ $status == 0 || ($status == 2 && $text == *"NO         stage"*) ]] || fault "configs/$1.yaml: slimexx plan ends with $status: $(tail -2 <<<"$text")"
}
if [[ -x $binary ]]; then
  plan glm-z1-9b
  plan glm-z1-9b-colocated --gpus 8
  plan glm4.5-355b
  plan glm4.7-355b
  plan glm4.7-flash-30b --gpus 8
  plan glm4.7-flash-30b-16gpus --gpus 16
  plan glm4.7-flash-30b-tp4 --gpus 16
  plan glm4.7-flash-30b-24gpus --gpus 24
  plan glm5.2-744b
else
  fault "no program at $binary: build slimexx, or set SLX_BINARY"
fi
[[ $faults == 0 ]] || { echo "check_recipes: $faults faults"; exit 1; }
echo "check_recipes: $checked flags of five recipes are accounted for, and 9 configurations planned"
