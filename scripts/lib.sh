# Shared by the scripts here and by those of tests/ that compile Java. Sourced, never run.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Prints the command of a Python that this project supports; fails if there is none.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# The prefix that runs a command as root without asking for a password; fails where there is none.
root_prefix() {
    if [ "$(id -u)" -eq 0 ]; then
        echo env
    elif sudo -n true 2>/dev/null; then
        echo "sudo -n env"
    else
        return 1
    fi
}

# Installs the first of the named packages that this Debian has. Fails, without output, where it may not.
apt_install_one_of() (
    local prefix package
    command -v apt-get apt-cache >/dev/null || return 1
    # Parts of set-up run side by side, and apt refuses to.
    exec 8<"${BASH_SOURCE[0]}"
    flock 8
    prefix=$(root_prefix) || return 1
    # An image without package lists knows no package: only then, and only once, ask for them.
    # (show reads to the end: a pipe that closes early would count as a failure.)
    if ! apt-cache show "$@" 2>/dev/null | grep '^Package:' >/dev/null; then
        $prefix apt-get update -q >&2 || return 1
    fi
    for package in "$@"; do
        if apt-cache show "$package" 2>/dev/null | grep '^Package:' >/dev/null; then
            say "installing $package"
            $prefix DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package" >&2
            return
        fi
    done
    return 1
)

# Runs Maven on the pom.xml of FOLDER: run_maven FOLDER WORDS...
run_maven() {
    local folder=$1 mvn
    shift
    mvn=$("$(dirname "${BASH_SOURCE[0]}")/maven")
    mvn=("$mvn" -q -B -f "$folder/pom.xml" "$@")
    # A JVM that runs for seconds: what its second compiler and G1's threads cost, half of the processor time, does not come back.
    export MAVEN_OPTS=${MAVEN_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}
    # Offline first: that is seconds faster and needs no network once the jars are there.
    "${mvn[@]}" -o >/dev/null 2>&1 || "${mvn[@]}" >&2
}

is_compiled() { [ -e "$2/built" ] && [ -z "$(find "$1/src" "$1/pom.xml" -newer "$2/built" -print -quit)" ]; }

# Compiles the sources of FOLDER, if one is newer than TARGET/built: compile_java FOLDER TARGET MAVEN-OPTIONS...
compile_java() {
    local folder=$1 target=$2 began
    shift 2
    is_compiled "$folder" "$target" && return
    mkdir -p "$target"
    # Tests may run side by side: one of them compiles, the others wait.
    exec 9>"$target/lock"
    flock 9
    if ! is_compiled "$folder" "$target"; then
        began=$(mktemp "$target/began.XXXX")
        run_maven "$folder" "$@" process-classes
        # What was edited meanwhile is newer than this.
        mv "$began" "$target/built"
    fi
    exec 9>&-
}
