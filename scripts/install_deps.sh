#!/usr/bin/env bash
# Installs the packages that build and tests need, only from the distribution's own archive, on Debian 12, Debian 13 and
# Ubuntu 24.04. On other systems it lists the requirements and exits 3. Takes no time if all are installed.
#
#   scripts/install_deps.sh          compilers, libraries, test tools
#   scripts/install_deps.sh --dev    also clang and the fuzzers' runtime libraries
set -euo pipefail

with_dev=false
case ${1:-} in
  '') ;;
  --dev) with_dev=true ;;
  *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

packages=(
  g++ cmake ninja-build ccache mold pkg-config git   # the build
  nlohmann-json3-dev libfmt-dev libspdlog-dev        # base
  libyaml-cpp-dev                                    # config
  libutf8proc-dev                                    # observe, text, reward
  libopenmpi-dev openmpi-bin                         # dist
  libzstd-dev libxxhash-dev                          # io, model
  libpcre2-dev                                       # text
  libboost-dev libcurl4-openssl-dev                  # reward
  libcli11-dev                                       # cli
  libgtest-dev                                       # tests
)
# scripts/check.sh needs clang-format-14, because other versions format differently; without it formatting is not
# checked.
release=unknown
[[ -r ${SLX_OS_RELEASE:=/etc/os-release} ]] && release=$(. "$SLX_OS_RELEASE" && echo "${ID:-} ${VERSION_ID:-}")
case $release in
  'debian 12') packages+=(clang-format-14); clang=14 ;;
  'debian 13') clang=19 ;;
  'ubuntu 24.04') packages+=(clang-format-14); clang=18 ;;
  *)
    cat >&2 <<EOF
install_deps: no package names are known for $release (only for Debian 12, Debian 13 and Ubuntu 24.04). Install these yourself:
  a C++20 compiler (g++ 12 or clang 14, or later), CMake 3.25, Ninja, pkg-config, git; ccache and mold if you like
  nlohmann-json 3.11, fmt 9, spdlog 1.10 (built against that fmt), yaml-cpp 0.7, utf8proc, Open MPI 4 or 5, zstd, xxHash, PCRE2,
  Boost (headers), libcurl, CLI11 2.1, GoogleTest; for scripts/check.sh clang-format-14
Then: cmake --preset cpu && cmake --build --preset cpu --target slimexx
EOF
    exit 3 ;;
esac
if $with_dev; then
  packages+=("clang-$clang" "libclang-rt-$clang-dev" "llvm-$clang")    # scripts/fuzz.sh, .ci/run
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "install_deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: missing: ${missing[*]}" >&2
    echo "install_deps: run this as root, or install sudo" >&2
    exit 3
  fi
  as_root=(sudo)
fi

echo "install_deps: installing ${missing[*]}"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
    -o Dpkg::Use-Pty=0 "$@" </dev/null
}
# Package lists may be absent or old: fetch new lists only if the installation fails.
if ! apt install --yes --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
  apt update
  apt install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi
