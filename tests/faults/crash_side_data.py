"""A hook that stores side data in each subtask: the end of the events of each run."""

import json

from statelib.backends.operator.state import OperatorStateBackend
from statelib.functions.user_code.hooks import SnapshotContext


def note(context: SnapshotContext, operator: OperatorStateBackend) -> None:
    log = operator.side_data("log")
    noted = set[int]().union(*map(moments_of, log.read_all()))
    if not context.savepoint and context.watermark_ms not in noted:
        log.write(json.dumps(sorted({*noted, context.watermark_ms})).encode())


def moments_of(log: bytes) -> set[int]:
    return set(json.loads(log))
