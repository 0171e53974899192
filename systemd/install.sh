#!/usr/bin/env bash
# Puts fsmq on this machine, or takes it off: the program in an environment of its own, the units,
# the user. Needs no network where the folder wheels/ stands beside systemd/, as in a bundle.
#
#   systemd/install.sh             install; over an older version: upgrade
#   systemd/install.sh uninstall   remove all of that; spools, settings and the user stay
#
#   PREFIX   where it goes            (default /usr/local)
#   DESTDIR  a root to stage it into  (default none: this machine, at once)
#   PYTHON   the interpreter to use   (default python3)
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
python=${PYTHON:-python3}
lib=$prefix/lib/fsmq
units=$prefix/lib/systemd/system
users=$prefix/lib/sysusers.d
man=$prefix/share/man/man1
programs=(fsmq mq mq-mover mq-reaper)
# Where each shell looks for what completes a command.
declare -A completions=(
    [bash]=$prefix/share/bash-completion/completions/fsmq
    [zsh]=$prefix/share/zsh/site-functions/_fsmq
    [fish]=$prefix/share/fish/vendor_completions.d/fsmq.fish
)

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

check() {
    [[ $prefix == /* ]] || fail "PREFIX must be an absolute path, not $prefix"
    if [[ -z $destdir ]]; then
        [[ $(id -u) == 0 ]] || fail "Only root can do this: sudo $0 $*" \
            "(or stage it into a folder of yours: DESTDIR=/some/folder)"
        command -v systemctl systemd-sysusers >/dev/null || fail "This machine has no systemd."
    fi
}

check_python() {
    local base
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "fsmq needs Python 3.11 or later: PYTHON=/path/to/python3.12 names another."
    base=$("$python" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))')
    case $base in
        /home/* | /root/*) fail "$python lies in $base, which the units may not look into." \
            "Name one of the system: PYTHON=/usr/bin/python3" ;;
    esac
}

# The environment is made beside the old one and put in its place when it is complete.
install_program() {
    local staged=$destdir$lib.new pip=() from=()
    rm -rf "$staged" "$destdir$lib.old"
    mkdir -p "${staged%/*}"
    if [[ -d $home/wheels ]]; then
        "$python" -m venv --without-pip "$staged"
        # pip runs from its wheel: not every Python comes with one.
        pip=("$staged/bin/python" "$(echo "$home"/wheels/pip-*.whl)/pip")
        from=(--no-index --find-links "$home/wheels" "fsmq[server,client]")
    else
        "$python" -c 'import ensurepip' 2>/dev/null ||
            fail "$python cannot install packages. On Debian and Ubuntu: apt-get install python3-venv"
        "$python" -m venv "$staged"
        pip=("$staged/bin/python" -m pip)
        from=("$home[server,client]")
    fi
    "${pip[@]}" --quiet --disable-pip-version-check install --no-compile \
        --root-user-action=ignore "${from[@]}"
    # The files name the place where they were made: let them name the one where they will be.
    grep -rlIF "$staged" "$staged/bin" "$staged/pyvenv.cfg" | xargs sed -i "s|$staged|$lib|g"
    if [[ -e $destdir$lib ]]; then mv "$destdir$lib" "$destdir$lib.old"; fi
    mv "$staged" "$destdir$lib"
    rm -rf "$destdir$lib.old"
    # The programs run as a user that may not write here, and would compile at every start.
    "$destdir$lib/bin/python" -m compileall -q ${destdir:+-s "$destdir" -p /} "$destdir$lib/lib"
}

install_files() {
    local program unit shell
    mkdir -p "$destdir$prefix/bin" "$destdir$units" "$destdir$users" "$destdir/etc/fsmq"
    for program in "${programs[@]}"; do
        ln -sfn "$lib/bin/$program" "$destdir$prefix/bin/$program"
    done
    for unit in "$home"/systemd/*.{service,socket,target,timer}; do
        sed "s|/usr/local/lib/fsmq|$lib|" "$unit" >"$destdir$units/${unit##*/}"
        chmod 644 "$destdir$units/${unit##*/}"
    done
    install -m 644 "$home/systemd/fsmq.sysusers" "$destdir$users/fsmq.conf"
    rm -f "$destdir$man"/fsmq{,-*}.1
    install -D -m 644 -t "$destdir$man" "$destdir$lib"/share/man/man1/*.1
    for shell in "${!completions[@]}"; do
        "$destdir$lib/bin/python" -m fsmq.cli completion "$shell" |
            install -D -m 644 /dev/stdin "$destdir${completions[$shell]}"
    done
    [[ -e $destdir/etc/fsmq/main.env ]] ||
        install -m 644 "$home/systemd/main.env" "$destdir/etc/fsmq/main.env"
}

install_all() {
    check_python
    install_program
    install_files
    if [[ -n $destdir ]]; then return; fi
    systemd-sysusers "$users/fsmq.conf"
    if [[ ! -d /run/systemd/system ]]; then return; fi  # installed, but systemd does not run
    systemctl daemon-reload
    if systemctl --quiet is-active 'fsmq@*.target'; then
        echo "fsmq is upgraded. Let what runs take it up, without losing a connection:"
        echo "    systemctl restart 'fsmq@*.target'"
    else
        echo "fsmq is installed. Start it, now and at every boot:"
        echo "    systemctl enable --now fsmq@main.target"
    fi
}

uninstall_all() {
    local program unit
    if [[ -z $destdir && -d /run/systemd/system ]]; then
        # The target's own stop would not wait for theirs.
        systemctl stop 'fsmq@*.target' 'fsmq-*@*.timer' 'fsmq-*@*.socket' 'fsmq-*@*.service'
        systemctl --quiet disable fsmq@.target fsmq-{drop,worker}@.service fsmq-{fsck,backup}@.timer
    fi
    for program in "${programs[@]}"; do
        [[ $(readlink "$destdir$prefix/bin/$program") != "$lib/bin/$program" ]] ||
            rm "$destdir$prefix/bin/$program"
    done
    for unit in "$home"/systemd/*.{service,socket,target,timer}; do
        rm -f "$destdir$units/${unit##*/}"
    done
    rm -f "$destdir$man"/fsmq{,-*}.1 "${completions[@]/#/$destdir}"
    rm -rf "$destdir$users/fsmq.conf" "$destdir$lib"
    if [[ -n $destdir ]]; then return; fi
    if [[ -d /run/systemd/system ]]; then systemctl daemon-reload; fi
    echo "fsmq is gone. What stays: the spools in /var/lib/fsmq, what was dropped in /var/lib/fsmq-drop, the snapshots"
    echo "in /var/lib/fsmq-backup, the settings in /etc/fsmq, and the user fsmq, whose they are. To remove those as"
    echo "well, with all messages:"
    echo "    rm -rf /var/lib/fsmq /var/lib/fsmq-drop /var/lib/fsmq-backup /etc/fsmq && userdel fsmq"
}

check "$@"
case ${1:-install} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) fail "$0: install or uninstall, not $1" ;;
esac
