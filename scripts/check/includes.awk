# A header must include the standard headers that it uses: with other compilers, standard headers include fewer of one another.
BEGIN {
  wants["cstdint"] = "(^|[^A-Za-z0-9_])u?int(8|16|32|64)_t([^A-Za-z0-9_]|$)"
  wants["memory"] = "std::((unique|shared|weak)_ptr|make_(unique|shared))"
  wants["utility"] = "std::(pair<|move\\(|exchange\\()"
  n = split("array atomic deque filesystem function:functional map mutex numeric_limits:limits optional set span string string_view thread tuple unordered_map unordered_set variant vector", names, " ")
  for (i = 1; i <= n; i++) {
    split(names[i] ":" names[i], pair, ":")
    wants[pair[2]] = "std::" pair[1] "([^A-Za-z0-9_]|$)"
  }
}
FILENAME !~ /\.h$/ { next }
FNR == 1 { report() }
{ file = FILENAME }
/^#include </ { name = $0; sub(/^#include </, "", name); sub(/>.*/, "", name); has[name] = 1; next }
{ code = $0; sub(/\/\/.*/, "", code); if (code == "") next }
{
  for (header in wants)
    if (!(header in used) && code ~ wants[header]) used[header] = FNR
}
END { report() }
function report(   header) {
  for (header in used)
    if (!(header in has)) print "include " file ":" used[header] ": uses <" header "> without including it"
  split("", used); split("", has)
}
