# Sizes: file 600 lines (rule "length"; from 401 on a warning), header 250, function 80 (tests: warning), kernel
# body 300, src/rl/training/loop.cpp 200. Functions are found by the layout that clang-format gives: a body
# opens on a line ending in "{" and closes with "}" in the column where its signature began.
function report(rule, path, line, message) { print rule " " path ":" line ": " message }
function end_file() {
  if (path == "") return
  if (path ~ /\.h$|\.cuh$/) {
    if (length_of_file > 250) report("size", path, 1, "header of " length_of_file " lines (250 are allowed)")
  } else if (length_of_file > 400) {
    report(length_of_file > 600 ? "length" : "warn-length", path, 1,
           "file of " length_of_file " lines (400 are usual, 600 allowed)")
  }
  if (path == "src/rl/training/loop.cpp" && length_of_file > 200)
    report("size", path, 1, "the loop has " length_of_file " lines (200 are allowed)")
}
FNR == 1 {
  end_file()
  path = FILENAME; opened = 0; header_start = 0; in_raw = 0
  limit = path ~ /\.cuh?$/ ? 300 : 80
}
{ length_of_file = FNR }
/R"[A-Za-z_]*\(/ && !/\)[A-Za-z_]*"/ { in_raw = 1; next }
in_raw { if (/\)[A-Za-z_]*"/) in_raw = 0; next }
opened {
  if (match($0, /^ */) && RLENGTH == indent && substr($0, indent + 1, 1) == "}") {
    lines = FNR - opened + 1
    if (lines > limit) report(path ~ /^tests\// ? "warn-size" : "size", path, opened,
                              "function of " lines " lines (" limit " are allowed)")
    opened = 0
  }
  next
}
/^ *(\/\/|#)/ || /^ *$/ { header_start = 0; next }
{
  match($0, /^ */); here = RLENGTH
  if (here == 0 || (here == 2 && /^  [A-Za-z_~\[]/)) {  # at namespace scope, or a member's
    if (!header_start || here <= header_indent) { header_start = FNR; header_indent = here; header = "" }
  }
  if (header_start) header = header $0
  if (/[;}]$/ || /:$/) header_start = 0
  else if (/\{$/ && header_start) {
    if (header !~ /^ *(inline )?namespace|^ *(export )?(template *<[^{]*> *)?(struct|class|union|enum) |^ *extern "C" \{|= *\{$/ && header ~ /\(/) {
      opened = header_start; indent = header_indent
    }
    header_start = 0
  }
}
END { end_file() }
