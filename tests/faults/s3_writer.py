"""A writer for tests to kill: it prints a line when it begins to send, and never ends."""

import sys
import time
from collections.abc import Iterator

from statelib.storage.objects.bucket import PART_BYTES, Bucket
from statelib.storage.retries import IMPATIENT


def content() -> Iterator[bytes]:
    for _ in range(2):
        yield bytes(PART_BYTES)
    print("sending", flush=True)
    time.sleep(600)


Bucket(f"s3://{sys.argv[1]}", IMPATIENT).put(sys.argv[2], 4 * PART_BYTES, content)
