"""The checks that no interval of the source is lost or applied twice. The checkpoint's own interval is compared with
all intervals before it."""

import pandas as pd

from statelib.model.checkpoint import DataInterval
from statelib.quality.facts import SourceHistory
from statelib.quality.rules import AllowedValues, Check, Frame


def interval_frames(interval: DataInterval, source: SourceHistory) -> list[Frame]:
    """Return the frames for lost and for doubled intervals.

    The time between the position of the base and this interval is lost; with ``source.gaps`` this is allowed and not
    checked. The time that this interval shares with an earlier interval of the history is doubled."""
    frames = [_doubled_frame(interval, source)] if source.applied else []
    if source.position is not None and not source.gaps:
        frames.insert(0, _lost_frame(interval, source.position))
    return frames


def _lost_frame(interval: DataInterval, position: DataInterval) -> Frame:
    lost_ms = max(interval.start_ms - position.end_ms, 0)
    table = pd.DataFrame([(position.end_ms, interval.start_ms, lost_ms)], columns=["applied_to", "start", "lost_ms"])
    check = Check(
        "no interval is lost: this one begins where the base's ends",
        AllowedValues("lost_ms", (0,)),
        lambda row: (
            f"the base has the source applied to {row['applied_to']} ms, this interval begins at {row['start']} ms: "
            f"{row['lost_ms']} ms in between are lost"
        ),
    )
    return Frame("lost_intervals", ("applied_to", "start"), table, (check,))


def _doubled_frame(interval: DataInterval, source: SourceHistory) -> Frame:
    rows = [
        (int(a.checkpoint_id), a.interval.start_ms, a.interval.end_ms, _overlap_ms(a.interval, interval))
        for a in source.applied
    ]
    table = pd.DataFrame(rows, columns=["checkpoint", "start", "end", "doubled_ms"])
    check = Check(
        "no interval is applied twice: this one shares nothing with those of the history",
        AllowedValues("doubled_ms", (0,)),
        lambda row: (
            f"checkpoint {row['checkpoint']} of the history has applied [{row['start']}, {row['end']}) ms already: "
            f"{row['doubled_ms']} ms of this interval are applied twice"
        ),
    )
    return Frame("doubled_intervals", ("checkpoint", "start", "end"), table, (check,))


def _overlap_ms(one: DataInterval, other: DataInterval) -> int:
    return max(min(one.end_ms, other.end_ms) - max(one.start_ms, other.start_ms), 0)
