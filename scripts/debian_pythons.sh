#!/usr/bin/env bash
# Runs tests on Pythons that this machine lacks, in a root of Debian sid below .pythons.
#
#   scripts/debian_pythons.sh prepare                    make the root (needs root and debootstrap, about 70 seconds)
#   scripts/debian_pythons.sh test VERSION SECONDS [TESTS ...]
#                                                        run tests there, for so long: VERSION is 3.14 or 3.15
#
# Exit status 77 means that the root or its environment cannot be made here, and 75 that the time was over before the end,
# and no test had failed; one line says why. The first failure ends the tests. Every mount is made in a private mount
# namespace, so nothing stays mounted, and removing .pythons cannot reach the devices of the machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root="$PWD/.pythons/root"
log="$PWD/.pythons/log"
packages=python3.14,python3.14-venv,python3.15,python3.15-venv,make,git,gcc,libc6-dev,redis-server

skip() {
    printf 'debian_pythons: left out, %s\n' "$1"
    exit 77
}

prepare() {
    [ ! -e "$root/.ready" ] || return 0
    [ "$(id -u)" = 0 ] || skip "making a root takes the user root"
    command -v debootstrap >/dev/null || skip "there is no debootstrap"
    unshare --mount true 2>/dev/null || skip "this machine allows no mount namespace"
    rm -rf "$root"
    mkdir -p "$root"
    unshare --mount --propagation private \
        timeout 240 debootstrap --variant=minbase --include="$packages" sid "$root" >"$log" 2>&1 ||
        skip "debootstrap failed: $(tail -n 1 "$log")"
    touch "$root/.ready"
}

# Run a command inside of the root until a time, with the project at /src and the official schemas at /spec.
inside() {
    local left=$(($1 - SECONDS))
    shift
    [ "$left" -gt 0 ] || return 124
    mkdir -p "$root/src" "$root/spec"
    export root command="$*"
    timeout --kill-after=10 "$left" unshare --mount --propagation private bash -euc '
        mount --bind /dev "$root/dev"
        mount --bind /dev/pts "$root/dev/pts"
        mount -t proc proc "$root/proc"
        mount --bind "$PWD" "$root/src"
        [ ! -d "${TOOLWIRE_SPEC:-}" ] || mount --bind "$TOOLWIRE_SPEC" "$root/spec"
        for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
            [ ! -e "$file" ] || install -D -m 644 "$(realpath "$file")" "$root$file"
        done
        unset PIP_FIND_LINKS PYENV_ROOT TOOLWIRE_REQUIRE_NGINX
        export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TOOLWIRE_SPEC="${TOOLWIRE_SPEC:+/spec}"
        exec chroot "$root" /bin/sh -c "git config --global --replace-all safe.directory \"*\" && cd /src && $command"'
}

# Exit when a command ended because the time was over.
stop_if_over() {
    case "$1" in 124 | 137) ;; *) return 0 ;; esac
    printf 'debian_pythons: Python %s: stopped after %s seconds, and no test failed until then\n' "$version" "$seconds"
    exit 75
}

run_tests() {
    local version="$1" seconds="$2" environment=".venv${1/./}" status=0
    shift 2
    local end=$((SECONDS + seconds))
    [ -e "$root/.ready" ] || skip "the root was not made"
    inside "$end" make --no-print-directory setup "PYTHON=python$version" "VENV=$environment" >"$log" 2>&1 || status=$?
    stop_if_over "$status"
    [ "$status" = 0 ] || skip "the environment of Python $version cannot be made: $(tail -n 1 "$log")"
    inside "$end" make --no-print-directory test "PYTHON=python$version" "VENV=$environment" "TESTS='--maxfail=1 $*'" ||
        status=$?
    stop_if_over "$status"
    return "$status"
}

case "${1:-}" in
prepare) prepare ;;
test) shift && run_tests "$@" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
