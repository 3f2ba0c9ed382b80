#!/usr/bin/env bash
# Follows a how-to page in a scratch copy of the sources, and runs the test that the page names. Reuses the existing
# build: only the files that the page adds or edits are compiled, because it edits no declaration that other files see.
#
#   scripts/check/howto.sh BUILD_FOLDER docs/howto/PAGE.md
#
# A fenced block of the page is applied if one of these comments comes before it:
#   <!-- new FILE -->              the block is the content of the new file
#   <!-- FILE: before TEXT -->     the block goes before the first line with TEXT; also "after", "in place of", "at the end"
# <!-- run MODULE FILTER --> names the cases of tests_MODULE that test the page. They must exist and pass.
set -euo pipefail
build=$(cd "$1" && pwd)
page=$(realpath "$2")
source=$(cd "$(dirname "$0")/../.." && pwd)
tree=$build/howto/$(basename "$page" .md)
rm -rf "$tree"
mkdir -p "$tree/tests" "$tree/objects"
cp -r "$source/src" "$source/include" "$tree/"
find "$source/tests" -mindepth 1 -maxdepth 1 ! -name golden ! -name fuzz -exec cp -r {} "$tree/tests/" \;
cp -rs "$source/tests/golden" "$tree/tests/"  # links, because some programs list the golden models when they start
cd "$tree"

fail() { echo "howto.sh: $page: $*" >&2; exit 1; }

# insert FILE HOW TEXT BLOCK
insert() {
  [[ -f $1 ]] || fail "the page edits $1, which does not exist"
  if [[ $2 == "at the end" ]]; then
    cat "$4" >>"$1"
    return
  fi
  grep -qF -- "$3" "$1" || fail "$1 has no line with: $3"
  HOW=$2 TEXT=$3 BLOCK=$4 awk '
    function block(  line) { while ((getline line < ENVIRON["BLOCK"]) > 0) print line }
    done || !index($0, ENVIRON["TEXT"]) { print; next }
    { done = 1 }
    ENVIRON["HOW"] == "before" { block(); print }
    ENVIRON["HOW"] == "after" { print; block() }
    ENVIRON["HOW"] == "in place of" { block() }' "$1" >edited
  mv edited "$1"
}

# Applies the page; stores the changed files in `touched` and its test in `module` and `filter`.
touched=() module='' filter=''
apply_page() {
  local line operation='' file how text in_block=0
  while IFS= read -r line; do
    if [[ $in_block -eq 1 ]]; then
      if [[ $line != '```' ]]; then
        printf '%s\n' "$line" >>block
        continue
      fi
      in_block=0
      if [[ $operation == new ]]; then
        [[ ! -e $file ]] || fail "the page creates $file, which already exists"
        mkdir -p "$(dirname "$file")"
        cp block "$file"
      else
        insert "$file" "$how" "$text" block
      fi
      touched+=("$file") operation=''
    elif [[ $line == '```'* && -n $operation ]]; then
      in_block=1
      : >block
    elif [[ $line =~ ^'<!-- new '([^ ]+)' -->'$ ]]; then
      operation=new file=${BASH_REMATCH[1]}
    elif [[ $line =~ ^'<!-- '([^ ]+)': '(before|after|'in place of'|'at the end')' '?(.*)'-->'$ ]]; then
      operation=edit file=${BASH_REMATCH[1]} how=${BASH_REMATCH[2]} text=${BASH_REMATCH[3]% }
    elif [[ $line =~ ^'<!-- run '([a-z]+)' '([^ ]+)' -->'$ ]]; then
      module=${BASH_REMATCH[1]} filter=${BASH_REMATCH[2]}
    fi
  done <"$page"
  [[ -n $module && ${#touched[@]} -gt 0 ]] || fail "the page names no test or changes no file"
}

# compile FILE OBJECT_OF_THE_BUILD NEW_OBJECT: compiles with the flags of that object.
compile() {
  local command name
  command=$(ninja -C "$build" -t commands -s "$2")
  name=$(sed -n 's/.* -c \([^ ]*\).*/\1/p' <<<"$command")
  [[ -n $name ]] || fail "the build has no $2"
  command=${command//"$name"/"$source/$1"}
  command=${command//"$2"/"$3"}
  for folder in src include tests; do command=${command//"$source/$folder"/"$tree/$folder"}; done
  bash -c "$command"
}

apply_page
test_objects=tests/$module/CMakeFiles/tests_$module.dir
link=$(ninja -C "$build" -t commands -s "tests/$module/tests_$module" | sed 's/^: && //; s/ && .*//')
compile tests/test_paths.cpp tests/CMakeFiles/test_paths.dir/test_paths.cpp.o "$tree/objects/test_paths.o"
link=${link/ -o / "$tree/objects/test_paths.o" -o }
for file in $(printf '%s\n' "${touched[@]}" | grep '\.cpp$' | sort -u); do
  object=$tree/objects/${file//\//_}.o
  case $file in
    tests/*)
      compile "$file" "$test_objects/${file#tests/"$module"/}.o" "$object"
      link=${link/"$test_objects/${file#tests/"$module"/}.o"/"$object"} ;;
    src/"$module"/*)
      known=$(ninja -C "$build" -t targets all | sed -n "s#^\(src/$module/CMakeFiles/slx_$module.dir/.*\.cpp\.o\):.*#\1#p" | tail -n 1)
      compile "$file" "$known" "$object"
      # The object goes before the libraries: then the linker does not take its symbols from the module's archive.
      link=${link/ -o / "$object" -o } ;;
    *) fail "the page changes $file, which is outside of src/$module and tests" ;;
  esac
done
program=$tree/objects/tests_$module
(cd "$build" && bash -c "${link/"-o tests/$module/tests_$module"/"-o $program"}")
"$program" --gtest_filter="$filter" --gtest_brief=1 | tee ran
grep -qE '\[  PASSED  \] [1-9]' ran || fail "tests_$module has no case that matches $filter"
