# Checks the text of the sources: white space, marks of unfinished work, absolute paths.
function fault(rule, message) { print rule " " FILENAME ":" FNR ": " message }
FNR == 1 { cpp = FILENAME ~ /\.(cpp|h|inl|def|cu|cuh)$/; checker = FILENAME ~ /^scripts\/check/ }
/[ \t\r]$/ { fault("space", "white space at the end of the line") }
cpp && /\t/ { fault("space", "tab") }
cpp && /[^\001-\177]/ { non_ascii[FILENAME]++ }
!checker && /(^|[^A-Za-z0-9_])(TODO|FIXME|XXX|HACK)([^A-Za-z0-9_(]|$)|(TODO|FIXME|XXX|HACK)\([^#]/ {
  fault("todo", "unfinished work without an issue; write TODO(#number)")
}
# A home folder, a container's work folder, or a job's scratch folder, as an absolute path.
/(^|[^A-Za-z0-9_.)}\/-])\/(home\/[a-z]|root\/|Users\/[A-Za-z]|work\/|farm\/|workspace\/|tmp\/[a-z]+_jobs)/ {
  fault("path", "an absolute path that exists only on one host")
}
cpp && /(^|[^A-Za-z0-9_])(class|struct|namespace|enum) +[A-Za-z_:]*([Uu]tils?|[Hh]elpers?|[Mm]anager|[Mm]isc)([^a-z]|$)/ {
  fault("name", "util, helper, manager or misc in the name of a type or namespace: name its job instead")
}
