# Each module's rank: a file may include, and a library link, modules of lower rank only. Read before layers.awk and source_lists.awk.
BEGIN {
  split("base:0 config:1 observe:1 tensor:2 dist:3 io:3 text:3 sample:4 ops:4 model:5 " \
        "train:6 rollout:6 reward:6 data:6 doctor:6 rl:7 cli:8", ranks, " ")
  for (i in ranks) { split(ranks[i], pair, ":"); rank[pair[1]] = pair[2] }
}
