# A class has at most 20 data members (rule "members"); structs of plain data may have more. Members are found by the
# layout that clang-format gives: two columns right of their class, continuations further right.
function end_member() {
  if (member == "" || member ~ /^(using|friend|struct|class|enum|static constexpr) /) return
  while (gsub(/<[^<>]*>|\{[^{}]*\}/, "", member)) {}
  if (member !~ /\(/) count += gsub(/,/, "", member) + 1  # otherwise a function
}
FNR == 1 { name = ""; in_raw = 0 }
/R"[A-Za-z_]*\(/ && !/\)[A-Za-z_]*"/ { in_raw = 1; next }
in_raw { if (/\)[A-Za-z_]*"/) in_raw = 0; next }
/^ *(\/\/|#|$)/ { next }
{ match($0, /^ */); here = RLENGTH }
name == "" {
  if (/^ *class [A-Za-z_0-9]+.*\{$/) {
    name = $2; indent = here; opened = FNR; count = 0; member = ""
  }
  next
}
here == indent && /^ *\}/ {
  end_member()
  if (count > 20)
    print "members " FILENAME ":" opened ": class " name " has " count " data members (20 are allowed)"
  name = ""
}
here == indent + 2 && !/^ *[})]/ {
  if (member !~ /^template <.*>$/) end_member()
  member = ""; is_open = 1
}
here >= indent + 2 && is_open {
  text = $0; sub(/ *\/\/.*/, "", text); sub(/^ +/, "", text)
  member = member (member == "" ? "" : " ") text
  is_open = text !~ /[;{}]$/
}
