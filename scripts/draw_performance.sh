#!/usr/bin/env bash
# Draws docs/performance.svg from the tables of docs/performance.md: for each marked row a bar of slimexx beside a bar of its peer.
#
#   scripts/draw_performance.sh              writes docs/performance.svg
#   scripts/draw_performance.sh --check      writes nothing; status 1 if the picture differs from the tables
#
# A row is marked by a comment in its first cell, `<!-- bar: LABEL -->`. Its columns are what | goal | slimexx | peer | machine | date.
# The slimexx cell begins with "NUMBER UNIT" or "NUMBER and NUMBER UNIT"; the peer cell is "NAME: NUMBER ...". The first number of each cell
# is drawn. Bars show slimexx / peer for rates and peer / slimexx for times (s, ms, us), so that slimexx is better above 1.
set -euo pipefail
cd "$(dirname "$0")/.."

check=false
case ${1:-} in
  '') ;;
  --check) check=true ;;
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "scripts/draw_performance.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
esac

draw() {
  awk '
    function trim(text) { gsub(/^[ *]+|[ *]+$/, "", text); return text }
    function escape(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }
    function number(text) { gsub(/,/, "", text); return text + 0 }
    function first_number(text) { return match(text, /[0-9][0-9,.]*/) ? substr(text, RSTART, RLENGTH) : "" }
    function unit_of(text) { return match(text, /(tokens|GB|TFLOP)\/s|[mu]?s( |$)/) ? trim(substr(text, RSTART, RLENGTH)) : "" }
    function fail(message) { printf "draw_performance: docs/performance.md:%d: %s\n", FNR, message >"/dev/stderr"; failed = 1; exit 1 }

    /^\|/ && match($0, /<!-- bar: [^>]* -->/) {
      label = substr($0, RSTART + 10, RLENGTH - 14)
      split($0, cells, "|")
      ours = first_number(cells[4])
      unit = unit_of(cells[4])
      peer = trim(cells[5])
      colon = 0
      for (i = 1; i <= length(peer); i++) if (substr(peer, i, 2) == ": ") colon = i
      theirs = first_number(substr(peer, colon + 1))
      if (ours == "" || unit == "" || !colon || theirs == "") fail("a marked row needs a number and a unit for slimexx, and a number for the peer")
      n++
      labels[n] = label
      notes[n] = trim(cells[6]) ". Peer: " substr(peer, 1, colon - 1)
      our_text[n] = ours " " unit
      their_text[n] = theirs " " unit
      ratio[n] = unit ~ /^[mu]?s$/ ? number(theirs) / number(ours) : number(ours) / number(theirs)
      if (ratio[n] > most) most = ratio[n]
    }
    END {
      if (failed) exit 1
      if (!n) { print "draw_performance: docs/performance.md has no marked row" >"/dev/stderr"; exit 1 }
      width = 940; left = 410; unit_width = 330 / (most > 1 ? most : 1); top = 62; step = 54
      height = top + n * step + 8
      printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", width, height, width, height
      print "<title>slimexx beside its peers</title>"
      print "<style>"
      print "  text { font-family: system-ui, -apple-system, \"Segoe UI\", Helvetica, Arial, sans-serif; font-size: 13px; fill: #1f2328; }"
      print "  .page { fill: #ffffff; } .note { font-size: 11px; fill: #59636e; } .head { font-size: 16px; font-weight: 600; }"
      print "  .ratio { font-weight: 600; } .ours { fill: #1a7f37; } .peer { fill: #afb8c1; } .one { stroke: #59636e; stroke-dasharray: 2 3; }"
      print "  @media (prefers-color-scheme: dark) {"
      print "    text { fill: #f0f6fc; } .page { fill: #0d1117; } .note { fill: #9198a1; }"
      print "    .ours { fill: #3fb950; } .peer { fill: #59636e; } .one { stroke: #9198a1; }"
      print "  }"
      print "</style>"
      printf "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width, height
      print "<text class=\"head\" x=\"16\" y=\"28\">slimexx beside its peers, as ratios: longer is better</text>"
      printf "<text class=\"note\" x=\"%.0f\" y=\"50\" text-anchor=\"middle\">peer = 1</text>\n", left + unit_width
      for (i = 1; i <= n; i++) {
        y = top + (i - 1) * step
        printf "<text x=\"16\" y=\"%d\">%s</text>\n", y + 15, escape(labels[i])
        printf "<text class=\"note\" x=\"16\" y=\"%d\">%s</text>\n", y + 32, escape(notes[i])
        printf "<rect class=\"ours\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"16\" rx=\"2\"/>\n", left, y + 2, ratio[i] * unit_width
        printf "<text x=\"%.0f\" y=\"%d\"><tspan class=\"ratio\">%.2f x</tspan> %s</text>\n", left + ratio[i] * unit_width + 8, y + 15, ratio[i], escape(our_text[i])
        printf "<rect class=\"peer\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"16\" rx=\"2\"/>\n", left, y + 20, unit_width
        printf "<text class=\"note\" x=\"%.0f\" y=\"%d\">%s</text>\n", left + unit_width + 8, y + 32, escape(their_text[i])
      }
      printf "<line class=\"one\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%d\" y2=\"%d\"/>\n", left + unit_width, left + unit_width, top - 6, top + n * step - 8
      print "</svg>"
    }' docs/performance.md
}

drawn=$(draw)
if $check; then
  [[ -f docs/performance.svg && $drawn == "$(cat docs/performance.svg)" ]] ||
    { echo "draw_performance: docs/performance.svg differs from the tables; run scripts/draw_performance.sh" >&2; exit 1; }
else
  printf '%s\n' "$drawn" >docs/performance.svg
fi
