#!/usr/bin/env bash
# Does everything that a release takes but the upload: checks, all tests, the files, the tag.
#
#   TESTS  the command that has to succeed  (default "make test", with all tests)
#   DIST   the folder that gets the files   (default dist/release)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $1" >&2; exit 1; }

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' fsmq/_version.py)
tag=v$version
notes=$(sed -n "/^## $version /,/^## /p" CHANGELOG.md | sed '/^## /d')

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "the version in fsmq/_version.py, $version, is not X.Y.Z"
[[ -z $(git status --porcelain) ]] || fail "the tree has changes that are not committed: git status"
[[ -z $(git tag --list "$tag") ]] || fail "the tag $tag exists already: set another version in fsmq/_version.py"
grep -Eq "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    fail "CHANGELOG.md has no heading '## $version (YYYY-MM-DD)'"
[[ -n ${notes//[[:space:]]/} ]] || fail "CHANGELOG.md says nothing about $version"

CI=1 bash -c "${TESTS:-make test}"
packaging/dist.sh
git tag --annotate "$tag" --message "fsmq $version" --message "$notes"

cat <<MESSAGE

The files are in ${DIST:-dist/release}, and the tag $tag is on this commit. What is left:
    git push origin $tag
    .venv/bin/python -m twine upload ${DIST:-dist/release}/*.whl ${DIST:-dist/release}/fsmq-$version.tar.gz
docs/releasing.md says what to do with the image, and how to take a release back.
MESSAGE
