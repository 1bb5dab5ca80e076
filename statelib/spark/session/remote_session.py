"""The session of a Spark Connect server: Spark runs in the server's processes, and this process needs no JVM."""

from collections.abc import Iterable
from typing import cast

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as RemoteSession

from statelib.errors import InvalidRequestError, RetryableError

ANSWERS_WITHIN_S = 30
"""The time for the connection. PySpark itself would try again for ten minutes."""
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def remote_session(url: str) -> SparkSession:
    """Return a new session of the server, which shares no settings and no temporary views with other sessions. It is
    over when it is stopped.

    Raises InvalidRequestError (``bad-remote``, ``remote-refused``); RetryableError (``remote-unreachable``)."""
    try:
        builder = DefaultChannelBuilder(url)
    except (PySparkException, ValueError) as error:  # ValueError: the port is not a number
        raise InvalidRequestError(
            f"the URL of the Spark Connect server is not valid: {error}",
            kind="bad-remote",
            hint="expected sc://HOST:PORT, with parameters such as /;token=TOKEN behind it",
        ) from error
    _wait_for_server(builder)
    session = cast("RemoteSession", SparkSession.builder.remote(url).create())
    try:
        _ = session.version  # the first call to the server, which checks the token
    except SparkConnectGrpcException as error:
        session.client.close()  # the server has no session to release
        session.stop()
        call = error.__context__
        if not isinstance(call, grpc.Call) or call.code() not in _REFUSALS:
            raise
        raise InvalidRequestError(
            f"the Spark Connect server at {builder.endpoint} refuses this client: {call.details()}",
            kind="remote-refused",
            hint="check the token of the URL: sc://HOST:PORT/;token=TOKEN, in which each = of the token is %3D",
        ) from error
    return cast("SparkSession", session)


def _wait_for_server(builder: DefaultChannelBuilder) -> None:
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(ANSWERS_WITHIN_S)
        except grpc.FutureTimeoutError as error:
            raise RetryableError(
                f"no Spark Connect server answers at {builder.endpoint} within {ANSWERS_WITHIN_S} s",
                kind="remote-unreachable",
                hint="check that the server runs, and the host, the port and use_ssl of its URL; "
                "with a token, the connection is encrypted unless the host is localhost",
            ) from error


def change_settings(spark: SparkSession, settings: Iterable[tuple[str, str]]) -> None:
    """Change settings of a session of a server, as (name, value).

    Raises InvalidRequestError (``bad-conf``) for a setting that is fixed when the server starts."""
    for name, value in settings:
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            raise InvalidRequestError(
                f"setting {name} cannot be changed in a session of Spark Connect: {error.getCondition() or error}",
                kind="bad-conf",
                hint="give it to the server when the server starts",
            ) from error
