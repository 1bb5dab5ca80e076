"""The headers of every response, and the responses to requests that fail."""

import logging
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
    UnsupportedError,
)
from statelib_airflow.api.shapes import ErrorResponse

log = logging.getLogger(__name__)

_STATUS: dict[type[StatelibError], int] = {
    RetryableError: 503,
    ConflictError: 409,
    NotFoundError: 404,
    InvalidRequestError: 422,
    CorruptStateError: 500,
    UnsupportedError: 501,
}
_DEPLOYMENT = {
    "missing-setting",
    "catalog-not-migrated",
    "no-catalog",
    "catalog-schema-unknown",
    "bad-catalog-url",
    "no-database-driver",
    "no-pipeline-directory",
}
"""Kinds of errors that the set-up of this API server causes, and not the request."""
_KINDS = {401: "not-signed-in", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}

DATA_CSP = "default-src 'none'; frame-ancestors 'self'"
_DEFAULTS = {
    "Content-Security-Policy": DATA_CSP,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Headers:
    """ASGI middleware that adds the strictest form of each security header that a response does not have."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def complete(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _DEFAULTS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, complete)


def _error_answer(status: int, kind: str, message: str, hint: str = "") -> JSONResponse:
    return JSONResponse(asdict(ErrorResponse(kind, message, hint)), status)


def handle_errors(app: FastAPI) -> None:
    """Give every error of a route a response of the same form."""

    @app.exception_handler(StatelibError)
    async def _ours(_: Request, error: StatelibError) -> JSONResponse:
        status = 503 if error.kind in _DEPLOYMENT else _STATUS.get(type(error), 500)
        return _error_answer(status, error.kind, error.message, error.hint)

    @app.exception_handler(StarletteHTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        return _error_answer(error.status_code, _KINDS.get(error.status_code, "http"), str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        texts = (f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors())
        return _error_answer(422, "bad-request", "; ".join(texts))

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _error_answer(500, "internal", "the page's back end failed", "the API server's log has the details")
