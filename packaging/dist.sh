#!/usr/bin/env bash
# Makes what a release consists of: the wheel, the source archive, a folder for an image, their sums.
#
#   PYTHON  an interpreter with the package `build`  (default .venv/bin/python)
#   DIST    the folder that gets them, which is emptied first  (default dist/release)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
dist=${DIST:-dist/release}
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' fsmq/_version.py)

rm -rf "$dist"
mkdir -p "$dist"
# The wheel is built from the source archive: so that one is known to be complete.
"$python" -m build --outdir "$dist" . >"$dist/build.log" 2>&1 || { cat "$dist/build.log" >&2; exit 1; }
rm "$dist/build.log"
"$python" -m twine check --strict "$dist"/*.whl "$dist"/*.tar.gz

image=fsmq-$version-image
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir "$staged/$image"
cp packaging/Dockerfile packaging/compose.yaml "$dist"/*.whl "$staged/$image"
tar --create --gzip --owner=0 --group=0 --file "$dist/$image.tar.gz" --directory "$staged" "$image"

cd "$dist"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
