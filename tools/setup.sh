#!/bin/sh
# Make .work/venv hold exactly what requirements/dev.txt pins, and .work/endpoint what requirements/endpoint.txt
# pins, and .work/azurite what tests/azurite pins; then install the checkout, editable. Does nothing when it is so already.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
work="$root/.work"
venv="$work/venv"
ready="$venv/.ready"
installed="$venv/.installed"
export TMPDIR="$work/tmp" UV_CACHE_DIR="${UV_CACHE_DIR:-$work/cache/uv}" UV_PYTHON_DOWNLOADS=never
mkdir -p "$TMPDIR"

checksum() {
    cat "$root/requirements/uv.txt" "$root/requirements/dev.txt" "$root/requirements/endpoint.txt" "$root/tools/setup.sh" "$root/tests/azurite/package-lock.json" | cksum
}

is() {  # does the file $1 hold the text $2?
    [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# The checkout itself: importable in every process of this environment, Spark's workers included. Needs no network.
install_checkout() {
    described=$(cat "$root/pyproject.toml" "$root/statelib/__init__.py" | cksum)
    if is "$installed" "$described $root"; then
        return
    fi
    "$venv/bin/uv" pip install --quiet --offline --no-deps --no-build-isolation --python "$venv/bin/python" --editable "$root"
    # The command line of a checkout works by default on the demo's deployment.
    cat > "$venv/bin/statelib.new" <<END
#!$venv/bin/python
from demo.cli import main
main()
END
    chmod +x "$venv/bin/statelib.new"
    mv "$venv/bin/statelib.new" "$venv/bin/statelib"
    echo "$described $root" > "$installed"
}

if is "$ready" "$(checksum) $root"; then
    install_checkout
    exit 0
fi

python="${PYTHON:-python3}"
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    echo "statelib needs Python 3.11 to 3.13, and '$python' is not: try 'make PYTHON=/path/to/python3.11 ...'" >&2
    exit 1
fi

echo "Setting up $venv (the first time takes some minutes and 1.2 GB) ..."
rm -f "$ready" "$installed"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --require-hashes -r "$root/requirements/uv.txt"
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes "$root/requirements/dev.txt"

# The S3 endpoint of the tests, apart: what it needs does not go together with the rest.
"$python" -m venv --without-pip "$work/endpoint"
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$work/endpoint/bin/python" --require-hashes \
    "$root/requirements/endpoint.txt"

# Azurite, the Azure endpoint of the tests, where there is npm; where there is none, those tests skip and say why.
if command -v npm >/dev/null 2>&1; then
    mkdir -p "$work/azurite"
    cp "$root/tests/azurite/package.json" "$root/tests/azurite/package-lock.json" "$work/azurite/"
    npm ci --prefix "$work/azurite" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
        echo "npm could not install Azurite: the tests of Azure will be skipped" >&2
fi

install_checkout
echo "$(checksum) $root" > "$ready"
