#!/bin/sh
# Builds SoftLayer's mq into a folder, under names that ours do not have: softlayer.sh DIR [SOURCE]
set -eu
mkdir -p "$1"
into=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "${2:-https://github.com/softlayer/mq}" "$work"
cd "$work"
git checkout --quiet 530197a2276ada41b74e517a958d8074b1dcb380
# The package that it watches folders with has moved; this version of its new home still has it.
sed -i 's,code.google.com/p/go.exp/inotify,golang.org/x/exp/inotify,' bin/watch.go
go mod init github.com/softlayer/mq
go get golang.org/x/exp@v0.0.0-20160623011055-292a51b8d262
go build -o "$into/softlayer-mq" mq.go route.go endpoint.go store.go uuid.go
go build -o "$into/softlayer-mq-mover" bin/mover.go bin/watch.go
go build -o "$into/softlayer-mq-reaper" bin/reaper.go bin/watch.go
