#!/usr/bin/env bash
# Makes dist/fsmq-VERSION-PYTHON-MACHINE.tar.gz: the wheel of fsmq and of all that it needs, the
# units and the installer, for machines without a network that have the same Python and processor.
#
#   PYTHON  the interpreter to make it for, which must have pip  (default python3)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' fsmq/_version.py)
name=fsmq-$version
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
archive=$PWD/dist/$name-$tag-linux_$(uname -m).tar.gz

staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir -p dist "$staged/$name"
# pip itself goes along: Debian's python3 comes without it.
"$python" -m pip --quiet --disable-pip-version-check wheel \
    --wheel-dir "$staged/$name/wheels" ".[server,client]" pip
cp -r systemd docs README.md CHANGELOG.md LICENSE "$staged/$name"
tar --create --gzip --owner=0 --group=0 --file "$archive" --directory "$staged" "$name"
echo "$archive"
