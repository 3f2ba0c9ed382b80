#!/usr/bin/env bash
# Installs what the build and the tests need on Debian 12 (bookworm), from its own archive only.
# Does nothing, quickly, when all of it is there.
#
#   scripts/install_deps.sh          compilers, libraries, test tools
#   scripts/install_deps.sh --dev    also clang and the fuzzers' run-time
set -euo pipefail

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
  clang-format-14                                    # scripts/check.sh
)
if [[ ${1:-} == --dev ]]; then
  packages+=(clang-14 libclang-rt-14-dev llvm-14)    # scripts/fuzz.sh
elif [[ $# -gt 0 ]]; then
  echo "usage: scripts/install_deps.sh [--dev]" >&2
  exit 2
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
# Package lists may be absent or old; fresh ones are wanted only if the present ones do not do.
if ! apt install --yes --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
  apt update
  apt install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi
