"""The process that runs one of statelib's jobs through a Spark Connect server, in place of spark-submit."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.providers.common.compat.sdk import AirflowNotFoundException as NoConnection
from airflow.sdk import BaseHook

ENDS_WITHIN_S = 60
"""The time that a client has to cancel its tasks and to abort, before it is killed."""
_ERROR_MARK = "statelib: "
"""The start of the last line of a job that failed."""


def server_url(conn_id: str) -> str | None:
    """Return the URL of the server if the connection is of type Spark Connect, otherwise None."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except NoConnection:
        return None  # the provider has a default of its own
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    return SparkConnectHook(conn_id).get_connection_url()


def refuse_arguments(arguments: Mapping[str, object]) -> None:
    """Raise AirflowFailException (``connect-argument``) if an argument of spark-submit has a value."""
    given = sorted(name for name, value in arguments.items() if value)
    if given:
        raise AirflowFailException(
            f"connect-argument: {', '.join(given)}: a job through Spark Connect does not take what spark-submit does: "
            "give it to the server when the server starts"
        )


class ConnectClient:
    """A client process. It has the environment of the task, with ``variables``."""

    def __init__(self, url: str, variables: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **variables, "SPARK_REMOTE": url}
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: str, arguments: Sequence[str], log: Callable[..., None]) -> None:
        """Run the script with the arguments, pass its lines to ``log``, and wait until it ends. Raise AirflowException
        with its error if it fails."""
        error = ""
        with subprocess.Popen(  # noqa: S603 - no shell is involved
            [sys.executable, script, *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self._process = process
            try:
                for line in process.stdout or ():
                    text = line.rstrip()
                    error = text if text.startswith(_ERROR_MARK) else error
                    log("%s", text)
            except BaseException:
                self.stop()  # as after the task's timeout: the end of the block waits for the client, however long
                raise
        if process.returncode:
            cause = error.removeprefix(_ERROR_MARK) or f"exit status {process.returncode}"
            raise AirflowException(f"the job through Spark Connect failed: {cause}")

    def stop(self) -> None:
        """End the client: it cancels its tasks and aborts its checkpoint."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
