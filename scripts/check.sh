#!/usr/bin/env bash
# Checks beyond those of the compiler: the layer rule, banned includes, sizes, names, source lists, formatting, stale
# generated pages. Takes a few seconds; needs bash, awk, git and clang-format-14.
#
#   scripts/check.sh             lists faults; status 1 if there are any
#   scripts/check.sh --warnings  also lists warnings about size
#
# scripts/check/allow.txt lists accepted faults with their reasons.
set -euo pipefail
cd "$(dirname "$0")/.."

show_warnings=false
case ${1:-} in
  '') ;;
  --warnings) show_warnings=true ;;
  *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
found=$scratch/found        # lines "RULE PATH[:LINE]: message"; warnings have RULE "warn-..."
: >"$found"

# The clone may belong to another user than the one who runs this script.
git -c safe.directory='*' ls-files -co --exclude-standard | LC_ALL=C sort -u |
  while read -r file; do [[ -f $file && ! -L $file ]] && printf '%s\n' "$file"; done >"$scratch/files"
list() { grep -E "$1" "$scratch/files" || true; }
cpp_files='\.(cpp|h|inl|def|cu|cuh)$'
text_files='(\.(cpp|h|inl|def|cu|cuh|cmake|sh|py|awk|md|yaml|yml)|CMakeLists\.txt|CMakePresets\.json|\.ci/run|allow\.txt)$'

list "$cpp_files" | xargs awk -f scripts/check/ranks.awk -f scripts/check/layers.awk >>"$found"
list "$cpp_files" | xargs awk -f scripts/check/sizes.awk >>"$found"
list "$cpp_files" | xargs awk -f scripts/check/members.awk >>"$found"
list "$cpp_files" | xargs awk -f scripts/check/includes.awk >>"$found"
list "$text_files" | grep -v '^tests/fuzz/corpus/' | xargs awk -f scripts/check/text.awk >>"$found"
awk -f scripts/check/names.awk "$scratch/files" >>"$found"
list '(^|/)CMakeLists\.txt$' | xargs awk -f scripts/check/ranks.awk -f scripts/check/source_lists.awk "$scratch/files" >>"$found"

# Formatting; not for .inl files, in which clang-format takes macros for types.
if command -v clang-format-14 >/dev/null; then
  list '\.(cpp|h|cu|cuh)$' | { xargs clang-format-14 --dry-run 2>&1 || true; } |
    awk -F: '/\[-Wclang-format-violations\]/ && !seen[$1]++ {
      print "format " $1 ":" $2 ": not formatted; run scripts/format.sh " $1 }' >>"$found"
else
  echo "check: formatting is not checked: clang-format-14 is missing, and other versions format differently" >&2
fi

# Generated pages, compared with the last program built.
binary=$(ls -t build/*/slimexx 2>/dev/null | head -n 1 || true)
binary=${SLX_BINARY:-$binary}
if [[ -n $binary && -d docs/reference ]]; then
  if ! message=$("$binary" docs --check docs/reference 2>&1 >/dev/null </dev/null); then
    printf 'docs docs/reference: %s\n' "$(tr '\n' ' ' <<<"$message")" >>"$found"
  fi
fi

for picture in performance learning_curve; do
  if [[ -f docs/$picture.svg ]] && ! scripts/draw_$picture.sh --check >/dev/null 2>&1; then
    echo "picture docs/$picture.svg: differs from its table; run scripts/draw_$picture.sh" >>"$found"
  fi
done

if [[ ! -f scripts/follow_wandb.py ]]; then
  :
elif command -v python3 >/dev/null; then
  if ! message=$(python3 scripts/check/follow_wandb_test.py 2>&1 </dev/null); then
    printf 'follow_wandb scripts/follow_wandb.py: %s\n' "$(tail -n 1 <<<"$message")" >>"$found"
  fi
else
  echo "check: scripts/follow_wandb.py is not checked: python3 is missing" >&2
fi

# Removes faults that allow.txt excuses, and reports excuses that match no fault.
awk -v docs_ran="$([[ -n $binary ]] && echo 1)" -f scripts/check/excuse.awk \
  scripts/check/allow.txt "$found" >"$scratch/left"

faults=$(grep -vc '^warn-' "$scratch/left" || true)
warnings=$(grep -c '^warn-' "$scratch/left" || true)
if $show_warnings; then
  cat "$scratch/left"
else
  grep -v '^warn-' "$scratch/left" || true
fi
echo "check: $(wc -l <"$scratch/files") files, $faults faults, $warnings warnings"
[[ $faults -eq 0 ]]
