# Checks the file names in the list of files: no words without meaning, and no two names that differ only by case or
# underscores. A folder has at most 25 files of code.
{
  base = $0; sub(/.*\//, "", base)
  stem = base; sub(/\..*/, "", stem)
}
/ / { print "name " $0 ":1: blank in a file name" }
!/^(src|include|kernels|tests|bench)\/.*\.(cpp|h|inl|def|cu|cuh)$/ { next }
{
  folder = $0; sub(/\/[^\/]*$/, "", folder)
  if (++num_files[folder] == 26) print "folder " folder ":1: more than 25 files of code; split the folder"
}
stem !~ /^[a-z0-9_]+$/ { print "name " $0 ":1: file names are snake_case" }
stem ~ /(^|_)(util|utils|helper|helpers|manager|misc)(_|$)/ {
  print "name " $0 ":1: util, helper, manager or misc in a file name: name the content instead"
}
{
  folded = tolower(stem); gsub(/_/, "", folded)
  if ((folded in first) && first[folded] != stem)
    print "name " $0 ":1: differs from the stem " first[folded] " by case or underscores only"
  else first[folded] = stem
}
