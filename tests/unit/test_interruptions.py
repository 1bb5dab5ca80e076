"""The interruptions that tests cause concern this project's threads alone."""

import threading

import pytest

from statelib.testing.interruptions import no_thread_starts


def test_threads_of_others_start_where_those_of_the_project_do_not() -> None:
    ran: list[str] = []
    with no_thread_starts(0) as started:
        other = threading.Thread(target=ran.append, args=("other",))
        other.start()
        other.join()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=ran.append, args=("own",), name="statelib-upload_0").start()
    assert ran == ["other"]
    assert started.count == 1
