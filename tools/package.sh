#!/bin/bash
# Makes Debian packages and the source tarball in build/package (or DIRECTORY).
# usage: tools/package.sh [DIRECTORY]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -le 1 ] || { echo "usage: tools/package.sh [DIRECTORY]" >&2; exit 2; }
dir=${1:-build/package}

umask 022 # what is installed must be readable
cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX=/usr -DBUILD_TESTING=OFF >/dev/null
ninja -C "$dir" --quiet
rm -f "$dir"/*.deb "$dir"/*.ddeb "$dir"/*.tar.gz
(cd "$dir" && cpack -G DEB && cpack --config CPackSourceConfig.cmake -G TGZ) >"$dir/cpack.log" 2>&1 || { cat "$dir/cpack.log" >&2; exit 1; }
# CPack writes wrong paths into md5sums of packages with symbols, and leaves out /usr/share/doc: made again.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for symbols in "$dir"/*.ddeb; do
        rm -rf "$root/x"
        dpkg-deb -R "$symbols" "$root/x"
        name=$(basename "$symbols")
        name=${name%%_*}
        mkdir -p "$root/x/usr/share/doc"
        ln -s "${name%-dbgsym}" "$root/x/usr/share/doc/$name"
        find "$root/x/usr" -type f -exec chmod 644 {} +
        (cd "$root/x" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/md5sums"
        mv "$root/md5sums" "$root/x/DEBIAN/md5sums"
        chmod 644 "$root/x/DEBIAN/md5sums"
        dpkg-deb --root-owner-group -Zxz -b "$root/x" "${symbols%.ddeb}.deb" >/dev/null
        rm "$symbols"
done
ls "$dir"/*.deb "$dir"/*.tar.gz
