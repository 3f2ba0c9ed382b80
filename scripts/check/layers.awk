# The rules of includes. A file of src/<module> or include/slimexx/<module> may include its own module and modules
# of lower rank. Other modules may not include private headers. Some third-party headers belong to one folder.
BEGIN {
  # Library header (a regular expression) -> the folder that wraps it.
  home["^mpi\\.h$"] = "src/dist/"
  home["^nccl\\.h$"] = "src/dist/"
  home["^nvtx3/"] = "src/observe/"
  home["^yaml-cpp/"] = "src/config/"
  home["^CLI/"] = "src/cli/"
  home["^curl/"] = "src/reward/"
  home["^boost/"] = "src/reward/"
  home["^pcre2\\.h$"] = "src/text/"
  home["^zstd(_errors)?\\.h$"] = "src/io/"
  home["^spdlog/"] = "src/base/"

  cpp_only = "^(spdlog|fmt|nlohmann|yaml-cpp|CLI|boost|curl|tl)/|^mpi\\.h$"
  third_party = cpp_only "|^(pcre2|zstd|zstd_errors|xxhash|utf8proc|curl)\\.h$"
  public_allowed = "^(fmt/core\\.h|nlohmann/json_fwd\\.hpp|tl/expected\\.hpp)$"
}
function fault(rule, message) { print rule " " FILENAME ":" FNR ": " message }
FNR == 1 {
  split(FILENAME, part, "/")
  module = ""; public = 0; cuda = FILENAME ~ /\.cuh?$/
  if (part[1] == "src") module = part[2]
  if (part[1] == "include") { module = part[3]; public = 1 }
  folder = FILENAME; sub(/[^\/]*$/, "", folder)
  if ((part[1] == "src" || public) && module != "kernels" && !(module in rank))
    fault("layer", "module " module " has no rank in scripts/check/ranks.awk")
}
!/^[ \t]*#[ \t]*include[ \t]*[<"]/ { next }
{
  target = $0
  sub(/^[^<"]*[<"]/, "", target); sub(/[>"].*/, "", target)
  if ($0 ~ /include[ \t]*</) check_library(); else check_own()
}
function check_library(   pattern) {
  if (cuda && target ~ cpp_only) fault("banned", "<" target "> in a CUDA file: nvcc must not compile it")
  if (public && target ~ third_party && target !~ public_allowed)
    fault("banned", "<" target "> in a public header: move it into a .cpp file")
  for (pattern in home)
    if (target ~ pattern && index(FILENAME, home[pattern]) != 1 && part[1] != "tests")
      fault("banned", "<" target "> is allowed only in " home[pattern])
}
function check_own(   name, seam) {
  if (part[1] == "kernels") {
    if (target !~ /^(kernels|slimexx\/kernels)\// && target ~ /\//)
      fault("layer", target ": a kernel may include only kernels/ and slimexx/kernels/")
    return
  }
  if (module == "") return
  seam = target ~ /^slimexx\//
  name = target
  sub(/^slimexx\//, "", name)
  if (name !~ /\// || name ~ /^\.\.?\//) {
    if (module_of(folder name) != module) fault("layer", target " is outside of module " module)
    return
  }
  sub(/\/.*/, "", name)
  if (name == module) return
  if (name == "kernels") {
    if (module != "ops" && module != "dist") fault("layer", target ": only ops and dist call kernels/")
    return
  }
  if (!(name in rank)) {
    if (!is_file(folder target)) fault("layer", target ": there is no module " name)
    return
  }
  if (!seam) fault("layer", target " is private to module " name)
  if (rank[name] >= rank[module])
    fault("layer", target ": " module " (rank " rank[module] ") may not include " name " (rank " rank[name] ")")
}
# The module of a path, after its ".." parts are resolved.
function module_of(path,   n, step, i, depth, kept) {
  n = split(path, step, "/"); depth = 0
  for (i = 1; i <= n; i++) {
    if (step[i] == "" || step[i] == ".") continue
    if (step[i] == "..") { if (depth > 0) depth--; continue }
    kept[++depth] = step[i]
  }
  return kept[1] == "include" ? kept[3] : kept[2]
}
function is_file(path,   line, status) {
  status = (getline line < path)
  close(path)
  return status >= 0
}
