#!/bin/bash
# Installs the Debian packages that building (and with --tests: testing) Coterie needs; only those that are missing. Root.
# usage: tools/install-packages.sh [--tests]
set -euo pipefail

build="build-essential cmake ninja-build pkg-config libfuse3-dev fuse3 libsqlite3-dev libglib2.0-dev libzstd-dev libxxhash-dev
       libarchive-dev libjansson-dev libsystemd-dev libcpg-dev libquorum-dev libvotequorum-dev libcmap-dev libcorosync-common-dev check sqlite3 python3"
tests="acl attr binutils corosync e2fsprogs fuse3 git gnuplot-nox iproute2 jq kmod libacl1-dev man-db procps psmisc rsync shellcheck util-linux xfsprogs zstd
       ansible-core augeas-tools ed inotify-tools liblockfile-bin logrotate nano openssh-client openssl patch perl sudo ucf vim-tiny"

wanted=$build
case "${1:-}" in
"") ;;
--tests) wanted="$build $tests" ;;
*)
        echo "usage: tools/install-packages.sh [--tests]" >&2
        exit 2
        ;;
esac

read -r -d '' -a wanted <<<"$wanted" || true
declare -A have=()
while read -r package; do have[$package]=yes; done < <(dpkg-query -W -f '${Package} ${Status}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/ [^ ]* ok installed$//p')
missing=()
for package in "${wanted[@]}"; do
        [ -n "${have[$package]:-}" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
        echo "install-packages: missing ${missing[*]}; run again as root (sudo) or install them yourself" >&2
        exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing: ${missing[*]}"
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "install-packages: apt-get could not install ${missing[*]}; its last lines are above" >&2
        exit 1
fi
