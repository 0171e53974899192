#!/usr/bin/env bash
# Starts fsmq in the background and walks one message through it, each step shown with its answer.
# `make run` calls it; `make stop` calls it with the argument stop.
#
#   ROOT  folder of the spool        (default /tmp/mq)
#   PORT  port of mq; 0: any free    (default 8080)
set -euo pipefail
cd "$(dirname "$0")/.."

root=${ROOT:-/tmp/mq}
port=${PORT:-8080}
python=.venv/bin/python
run=.run
pid_file=$run/fsmq.pid
log=$run/fsmq.log      # what the programs report: one JSON object a line
answer=$run/fsmq.out   # what `fsmq up` says once all three are ready

# The process in the pid file, if that is still ours and not another that got its number.
running() {
    [[ -s $pid_file ]] || return 1
    pid=$(<"$pid_file")
    grep -qs 'fsmq' "/proc/$pid/cmdline"
}

start() {
    mkdir -p "$run"
    : >"$answer"
    echo "\$ fsmq up --root $root --port $port &"
    # A session of its own: it stays when this terminal closes.
    setsid "$python" -m fsmq.cli up --root "$root" --port "$port" \
        </dev/null >"$answer" 2>"$log" &
    pid=$!
    echo "$pid" >"$pid_file"
    for _ in {1..300}; do
        grep -q '^fsmq is up' "$answer" && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "fsmq did not start. The end of its log, $log:" >&2
    tail -n 10 "$log" >&2
    kill "$pid" 2>/dev/null || true
    rm -f "$pid_file"
    exit 1
}

stop() {
    if ! running; then
        echo "fsmq is not running (from this folder)."
        return
    fi
    kill "$pid"
    for _ in {1..300}; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    rm -f "$pid_file"
    echo "fsmq has stopped. Its messages are where they were."
}

# request METHOD URL [BODY]: show the command, send it, show the answer.
request() {
    local method=$1 url=$2 shown=$2
    shift 2
    [[ $url == *\?* ]] && shown="'$url'"
    echo
    if command -v curl >/dev/null; then
        echo "\$ curl -i -X $method $shown${1:+ --data-binary '$1'}"
        curl -sS -i --max-time 30 -X "$method" "$url" ${1:+--data-binary "$1"} | tr -d '\r' |
            tee "$run/answer"
    else
        echo "# $method $url${1:+ with the body '$1'}"
        "$python" - "$method" "$url" "$@" <<'PYTHON' | tee "$run/answer"
import sys, urllib.error, urllib.request
method, url, *body = sys.argv[1:]
request = urllib.request.Request(url, method=method, data=body[0].encode() if body else None)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print("HTTP/1.1", answer.status, answer.reason)
print(answer.headers.as_string() + answer.read().decode(), end="")
PYTHON
    fi
    [[ -z $(tail -c 1 "$run/answer") ]] || echo
}

# expect CODE: the tour is a test, too.
expect() {
    head -n 1 "$run/answer" | grep -q " $1 " || { echo "expected $1" >&2; exit 1; }
}

tour() {
    local url=$1 root=$2 id
    request PUT "$url/tour"
    expect '20[01]'
    request POST "$url/tour/messages" 'Hello, queue!'
    expect 201
    request GET "$url/tour/messages?wait=10"
    expect 200
    id=$(sed -n 's/^X-Message-Id: *//Ip' "$run/answer")
    echo
    echo "Fetched and not yet deleted: it waits here, as a file, and comes back if nobody deletes it."
    echo "\$ grep . $root/delay/tour:$id"
    grep . "$root/delay/tour:$id"
    request DELETE "$url/tour/messages/$id"
    expect 202
}

if [[ ${1:-} == stop ]]; then
    stop
    exit
fi
if running; then
    echo "fsmq is already up."
else
    start
fi
cat "$answer"
url=$(sed -n 's/^fsmq is up: *//p' "$answer")
root=$(sed -n 's/^root: *//p' "$answer")
tour "$url" "$root"
echo
echo "The main job: real files go in, daemons and consumers are killed with SIGKILL, all come out."
"$python" -m tests.harness.real_input --url "$url" --root "$root" --supervisor "$(<"$pid_file")"
echo
echo "fsmq stays up at $url"
echo "  its log:    $log"
echo "  its spool:  $root"
echo "  stop it:    make stop"
