# File names, from the list of files: words that say nothing, twins but for case and underscores. A
# folder has at most 25 files of code.
{
  base = $0; sub(/.*\//, "", base)
  stem = base; sub(/\..*/, "", stem)
}
/ / { print "name " $0 ":1: blank in a file name" }
!/^(src|include|kernels|tests|bench)\/.*\.(cpp|h|inl|def|cu|cuh)$/ { next }
{
  folder = $0; sub(/\/[^\/]*$/, "", folder)
  if (++num_files[folder] == 26) print "folder " folder ":1: more than 25 files of code; give its jobs folders"
}
stem !~ /^[a-z0-9_]+$/ { print "name " $0 ":1: file names are snake_case" }
stem ~ /(^|_)(util|utils|helper|helpers|manager|misc)(_|$)/ {
  print "name " $0 ":1: the name says nothing about the content"
}
{
  folded = tolower(stem); gsub(/_/, "", folded)
  if ((folded in first) && first[folded] != stem)
    print "name " $0 ":1: differs from the stem " first[folded] " by case or underscores only"
  else first[folded] = stem
}
