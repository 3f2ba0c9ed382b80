# First file: the list of all files; then every CMakeLists.txt. Each .cpp of src/, tests/ and bench/
# must be named in the nearest CMakeLists.txt above it, and each module links lower ranks only.
NR == FNR {
  if (/^(src|tests|bench)\/.*\.(cpp|cu)$/ && !/^tests\/fuzz\/corpus\//) source[$0] = 1
  next
}
FNR == 1 { folder = FILENAME; sub(/CMakeLists\.txt$/, "", folder); has_list[folder] = 1; module = ""; reading = 0 }
{
  line = $0; sub(/#.*/, "", line)
  gsub(/[()";]/, " & ", line)
  n = split(line, word, /[ \t()";]+/)
  for (i = 1; i <= n; i++) {
    if (word[i] ~ /\.(cpp|cu)$/) named[folder word[i]] = FILENAME ":" FNR
    if (i > 1 && word[i - 1] == "slx_add_module") module = word[i]
    if (word[i] ~ /^[A-Z_]+$/) reading = word[i] == "DEPENDS"
    else if (reading && module != "" && FILENAME !~ /^tests\// && (word[i] in rank) && rank[word[i]] >= rank[module])
      print "layer " FILENAME ":" FNR ": " module " may not link " word[i]
  }
  if (line ~ /\)/) { reading = 0; module = "" }
}
END {
  for (path in source) {
    above = path
    do sub(/[^\/]*\/?$/, "", above); while (above != "" && !(above in has_list))
    if (!(path in named)) print "list " path ":1: not named in " above "CMakeLists.txt"
  }
}
