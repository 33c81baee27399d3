# What the outside judges need, installed without hand work into tests/.tools (ignored by git). Sourced by the `run`
# scripts beside it. A second call finds everything in place and does nothing.
#
# Offers: skip, compare_golden, install_python, install_rclone, clean_environment, start_server, add_user, stop_server; TOOLS, VENV, REPO.

TESTS="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
REPO="$(dirname "$TESTS")"
TOOLS="${CLAYSTONE_TOOLS:-$TESTS/.tools}"
VENV="$TOOLS/venv"
PATH="$TOOLS/bin:$PATH"

say() { echo "-- $*" >&2; }
die() { echo "error: $*" >&2; exit 1; }

# What cannot be checked here for want of a tool: an error where CLAYSTONE_STRICT is set, else a line that says so. The caller
# has HERE.
skip() {
    [ -z "${CLAYSTONE_STRICT:-}" ] || die "$*"
    echo "$(basename "$HERE"): SKIPPED, nothing was checked: $*" >&2
    mkdir -p "$TOOLS"
    echo "$(basename "$HERE"): $*" >>"$TOOLS/skipped"
    exit 0
}

# compare_golden FAMILY PROGRAM: whether `PROGRAM K M BYTES` writes the parity that is pinned for each FAMILY:K+M.
compare_golden() {
    local passed=0 failed=0 data parity bytes hash
    while read -r data parity bytes hash; do
        if [ "$("$2" "$data" "$parity" "$bytes" | sha256sum | cut -d ' ' -f 1)" = "$hash" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "$1:$data+$parity differs"
        fi
    done < <(sed -nE 's/^ *\("'"$1"':([0-9]+)\+([0-9]+)", ([0-9]+), "([0-9a-f]+)"\),$/\1 \2 \3 \4/p' "$REPO/crates/code/tests/golden.rs")
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# A Debian package, if we may install one.
apt_install() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
    say "installing $1 with apt-get"
    { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" ||
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1"; }; } >&2
}

# A virtual environment with the pinned requirements; rebuilt when the pins change.
install_python() {
    local pins="$TESTS/requirements.txt" stamp="$VENV/pins"
    cmp -s "$pins" "$stamp" && return
    command -v python3 >/dev/null || apt_install python3 || die "python3 is needed"
    say "installing Python clients into $VENV"
    rm -rf "$VENV"
    mkdir -p "$TOOLS"
    if ! python3 -m venv "$VENV" 2>/dev/null; then
        rm -rf "$VENV"
        apt_install python3-venv || die "python3 lacks the venv module (on Debian: apt-get install python3-venv)"
        python3 -m venv "$VENV"
    fi
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --requirement "$pins" >&2 || die "pip could not install $pins"
    cp "$pins" "$stamp"
}

# rclone from Debian; without root, built from its Go module.
install_rclone() {
    command -v rclone >/dev/null && return
    apt_install rclone && return
    command -v go >/dev/null || die "rclone is needed: install it, or run as root on Debian, or have go on PATH"
    say "building rclone"
    GOBIN="$TOOLS/bin" go install github.com/rclone/rclone@v1.76.0 >&2 || die "rclone could not be built"
}

# Clients read certificates, proxies, profiles and keys from the environment: none of it belongs in a test.
clean_environment() {
    local name
    for name in $(compgen -e); do
        case "$name" in
            AWS_* | RCLONE_* | S3CMD_* | *_CA_BUNDLE | SSL_CERT_* | *_proxy | *_PROXY) unset "$name" ;;
        esac
    done
    export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true
    export AWS_DEFAULT_REGION=us-east-1 PYTHONDONTWRITEBYTECODE=1 NO_PROXY='*'
}

# field NAME: one field of the JSON object on standard input.
field() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# Starts the program on a new store in DIR, unless CLAYSTONE_ENDPOINT names a server that runs already; sets
# CLAYSTONE_ENDPOINT, CLAYSTONE_ACCESS_KEY and CLAYSTONE_SECRET_KEY. The caller, who has HERE, traps EXIT and calls
# stop_server. The server's log stays in TOOLS.
start_server() {
    if [ -n "${CLAYSTONE_ENDPOINT:-}" ]; then
        [ -n "${CLAYSTONE_ACCESS_KEY:-}" ] && [ -n "${CLAYSTONE_SECRET_KEY:-}" ] ||
            die "CLAYSTONE_ENDPOINT is set: CLAYSTONE_ACCESS_KEY and CLAYSTONE_SECRET_KEY must be too"
        return
    fi
    local dir="$1" program="${CLAYSTONE_BIN:-}" log tries
    # The newer of the two builds.
    [ -n "$program" ] || program="$(ls -t "$REPO"/target/{release,debug}/claystone 2>/dev/null | head -n 1 || true)"
    [ -x "$program" ] || die "there is no program ${program:-in target}: build it (cargo build) or name it in CLAYSTONE_BIN"
    SERVER="$program"
    log="$TOOLS/$(basename "$HERE")-server.log"
    "$program" up "$dir" --listen 127.0.0.1:0 --console 127.0.0.1:0 --log-level "${CLAYSTONE_LOG_LEVEL:-warn}" --json \
        >"$dir.out" 2>"$log" &
    SERVER_PID=$!
    for ((tries = 0; ; tries++)); do
        grep -qs '"event":"ready"' "$dir.out" && break
        kill -0 "$SERVER_PID" 2>/dev/null || { tail -n 50 "$log" >&2; die "the server ended at once"; }
        [ "$tries" -lt 300 ] || { tail -n 50 "$log" >&2; die "the server is not ready after 30 s"; }
        sleep 0.1
    done
    CLAYSTONE_ENDPOINT="$(grep '"event":"ready"' "$dir.out" | field s3)"
    CLAYSTONE_ACCESS_KEY="$(field access_key <"$dir/credentials.json")"
    CLAYSTONE_SECRET_KEY="$(field secret_key <"$dir/credentials.json")"
    export CLAYSTONE_ENDPOINT CLAYSTONE_ACCESS_KEY CLAYSTONE_SECRET_KEY
}

# add_user DIR ACCOUNT NAME: makes a key of another account on the store we started; sets CLAYSTONE_<NAME>_ID,
# _ACCESS_KEY and _SECRET_KEY. An account is called as its id.
add_user() {
    local made
    made="$("$SERVER" key --dir "$1" --json add --account "$2")" || die "the server made no key for $2"
    export "CLAYSTONE_$3_ID=$2" "CLAYSTONE_$3_ACCESS_KEY=$(field access_key <<<"$made")" \
        "CLAYSTONE_$3_SECRET_KEY=$(field secret_key <<<"$made")"
}

stop_server() {
    [ -n "${SERVER_PID:-}" ] || return 0
    kill -TERM "$SERVER_PID" 2>/dev/null && wait "$SERVER_PID" 2>/dev/null
    SERVER_PID=
}
