#!/bin/sh
# Make .work/venv hold exactly what requirements-dev.txt pins, and .work/endpoint what requirements-endpoint.txt
# pins, and .work/azurite what tests/azurite pins. Does nothing when it does already.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
work="$root/.work"
venv="$work/venv"
ready="$venv/.ready"

checksum() {
    cat "$root/requirements-dev.txt" "$root/demo/bootstrap.txt" "$root/demo/bootstrap.sh" "$root/requirements-endpoint.txt" "$root/tests/azurite/package-lock.json" | cksum
}

if [ -f "$ready" ] && [ "$(cat "$ready")" = "$(checksum) $root" ]; then
    exit 0
fi

python="${PYTHON:-python3}"
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    echo "statelib needs Python 3.11 to 3.13, and '$python' is not: try 'make PYTHON=/path/to/python3.11 ...'" >&2
    exit 1
fi

echo "Setting up $venv (the first time takes some minutes and 1.2 GB) ..."
export TMPDIR="$work/tmp" UV_CACHE_DIR="${UV_CACHE_DIR:-$work/cache/uv}" UV_PYTHON_DOWNLOADS=never
mkdir -p "$TMPDIR"
rm -f "$ready"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --require-hashes -r "$root/demo/bootstrap.txt"
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes "$root/requirements-dev.txt"

# The S3 endpoint of the tests, apart: what it needs does not go together with the rest.
"$python" -m venv --without-pip "$work/endpoint"
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$work/endpoint/bin/python" --require-hashes \
    "$root/requirements-endpoint.txt"

# Azurite, the Azure endpoint of the tests, where there is npm; where there is none, those tests skip and say why.
if command -v npm >/dev/null 2>&1; then
    mkdir -p "$work/azurite"
    cp "$root/tests/azurite/package.json" "$root/tests/azurite/package-lock.json" "$work/azurite/"
    npm ci --prefix "$work/azurite" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
        echo "npm could not install Azurite: the tests of Azure will be skipped" >&2
fi

# The checkout itself: on the path of every process of this environment, Spark's workers included.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root" > "$site/statelib-checkout.pth"
cat > "$venv/bin/statelib" <<END
#!$venv/bin/python
from demo.cli import main
main()
END
chmod +x "$venv/bin/statelib"
echo "$(checksum) $root" > "$ready"
