#!/bin/sh
# Run a command with its temporary files in memory where there is room: the tests write and fsync many small ones.
# What failed stays there to be looked at. STATELIB_TEST_MEMORY=0 leaves them on the disk.
set -u
room_kib=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${STATELIB_TEST_MEMORY:-1}" = 0 ] || [ ! -w /dev/shm ] || [ "${room_kib:-0}" -lt 8388608 ]; then
    exec "$@"
fi
TMPDIR=$(mktemp -d /dev/shm/statelib-tests-XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"; exit 130' INT TERM HUP
"$@"
status=$?
if [ "$status" = 0 ]; then
    rm -rf "$TMPDIR"
else
    echo "temporary files of the tests: $TMPDIR" >&2
fi
exit "$status"
