#!/bin/sh
# Build the State page in <directory> (a scratch copy; node_modules and the result, dist/, stay there).
# With --install, the result replaces the committed dist/.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
directory=${1:?usage: build.sh DIRECTORY [--install]}
mkdir -p "$directory"
for part in src test mock index.html licenses.ts package.json package-lock.json tsconfig.json vite.config.ts .npmrc; do
    rm -rf "${directory:?}/$part"
    cp -R "$here/$part" "$directory/$part"
done
cd "$directory"
lock=$(cksum < package-lock.json)
if [ "$(cat node_modules/.made-of 2>/dev/null || true)" != "$lock" ]; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    rm -f node_modules/.made-of
    echo "$lock" > node_modules/.made-of
fi
./node_modules/.bin/tsc --noEmit
rm -rf dist
./node_modules/.bin/vite build --logLevel=warn
if [ "${2:-}" = --install ]; then
    rm -rf "$here/dist"
    cp -R dist "$here/dist"
fi
