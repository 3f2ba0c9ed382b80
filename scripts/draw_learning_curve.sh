#!/usr/bin/env bash
# Draws docs/learning_curve.svg from docs/learning_curve.tsv: mean reward of each rollout as a line, pass@1 on held-out prompts as points.
#
#   scripts/draw_learning_curve.sh                        draws the picture
#   scripts/draw_learning_curve.sh --from METRICS SET     makes the table from a run's metrics.jsonl and an evaluation set's name, and draws
#   scripts/draw_learning_curve.sh --check                writes nothing; status 1 if the picture differs from the table
set -euo pipefail
cd "$(dirname "$0")/.."

check=false
case ${1:-} in
  '') ;;
  --check) check=true ;;
  --from)
    metrics=${2:?--from needs a metrics.jsonl} set=${3:?--from needs the name of an evaluation set}
    awk -v set="$set" '
      function value(key,  at, text) {
        at = index($0, "\"" key "\": ")
        if (!at) return "-"
        text = substr($0, at + length(key) + 4)
        sub(/[,}].*/, "", text)
        return text
      }
      BEGIN { print "rollouts\treward\tpass@1" }
      { print value("step") + 1 "\t" value("rollout/raw_reward") "\t" value("eval/" set "/pass@1") }' "$metrics" >docs/learning_curve.tsv
    ;;
  -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "scripts/draw_learning_curve.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
esac

draw() {
  awk -F '\t' '
    function x_of(rollouts) { return left + rollouts * width / last }
    function y_of(share) { return top + (1 - share) * height }
    NR == 1 { next }
    { n++; at[n] = $1; reward[n] = $2; pass[n] = $3; if ($1 > last) last = $1 }
    END {
      if (!last) { print "draw_learning_curve: docs/learning_curve.tsv has no rollout" >"/dev/stderr"; exit 1 }
      left = 56; top = 52; width = 820; height = 220
      printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"940\" height=\"330\" viewBox=\"0 0 940 330\" role=\"img\">\n"
      print "<title>Learning curve of SmolLM2-135M-Instruct on two-digit sums</title>"
      print "<style>"
      print "  text { font-family: system-ui, -apple-system, \"Segoe UI\", Helvetica, Arial, sans-serif; font-size: 12px; fill: #59636e; }"
      print "  .page { fill: #ffffff; } .head { font-size: 16px; font-weight: 600; fill: #1f2328; } .value { fill: #1f2328; }"
      print "  .grid { stroke: #d1d9e0; } .reward { fill: none; stroke: #afb8c1; stroke-width: 1.5; }"
      print "  .pass { fill: none; stroke: #1a7f37; stroke-width: 2; } .dot { fill: #1a7f37; }"
      print "  @media (prefers-color-scheme: dark) {"
      print "    text { fill: #9198a1; } .page { fill: #0d1117; } .head, .value { fill: #f0f6fc; } .grid { stroke: #3d444d; }"
      print "    .reward { stroke: #59636e; } .pass { stroke: #3fb950; } .dot { fill: #3fb950; }"
      print "  }"
      print "</style>"
      print "<rect class=\"page\" width=\"940\" height=\"330\" rx=\"8\"/>"
      print "<text class=\"head\" x=\"16\" y=\"28\">SmolLM2-135M-Instruct learns two-digit sums (GRPO)</text>"
      for (percent = 0; percent <= 100; percent += 25) {
        printf "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", left, left + width, y_of(percent / 100), y_of(percent / 100)
        printf "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n", left - 8, y_of(percent / 100) + 4, percent
      }
      for (rollouts = 0; rollouts <= last; rollouts += 20)
        printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x_of(rollouts), top + height + 20, rollouts
      printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">rollouts of 32 prompts x 8 samples; line: mean reward, points: pass@1 on 100 held-out prompts</text>\n", left + width / 2, top + height + 42
      for (i = 1; i <= n; i++) if (reward[i] != "-") line = line sprintf("%.1f,%.1f ", x_of(at[i]), y_of(reward[i]))
      printf "<polyline class=\"reward\" points=\"%s\"/>\n", line
      for (i = 1; i <= n; i++) if (pass[i] != "-") points = points sprintf("%.1f,%.1f ", x_of(at[i]), y_of(pass[i]))
      printf "<polyline class=\"pass\" points=\"%s\"/>\n", points
      for (i = 1; i <= n; i++) if (pass[i] != "-") {
        printf "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x_of(at[i]), y_of(pass[i])
        printf "<text class=\"value\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f %%</text>\n", x_of(at[i]), y_of(pass[i]) - 10, 100 * pass[i]
      }
      print "</svg>"
    }' docs/learning_curve.tsv
}

drawn=$(draw)
if $check; then
  [[ -f docs/learning_curve.svg && $drawn == "$(cat docs/learning_curve.svg)" ]] ||
    { echo "draw_learning_curve: docs/learning_curve.svg differs from the table; run scripts/draw_learning_curve.sh" >&2; exit 1; }
else
  printf '%s\n' "$drawn" >docs/learning_curve.svg
fi
