# Each module's rank: a file may include, and a library link, modules of lower rank only. Read before layers.awk and source_lists.awk.
BEGIN {
  split("base:0 config:1 observe:1 tensor:2 ops:3 dist:3 io:3 text:3 model:4 " \
        "train:5 rollout:5 reward:5 data:5 rl:6 cli:7", ranks, " ")
  for (i in ranks) { split(ranks[i], pair, ":"); rank[pair[1]] = pair[2] }
}
