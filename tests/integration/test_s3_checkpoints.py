"""Checkpoint, verify, savepoint and restore with all state on S3: real flows over HTTP, no Spark."""

import logging
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store
from typer.testing import CliRunner
from worlds import checkpoint_of, new_deployment, publish_here

from statelib.cli.main import app
from statelib.flows.checkpoint import abort, check, register
from statelib.flows.inspection import verify, verify_at
from statelib.flows.opened import open_checkpoint
from statelib.flows.restore import apply_restore, plan_restore
from statelib.flows.savepoint import begin_savepoint
from statelib.flows.wiring import VARIABLES, Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.testing.s3_endpoint import CANARY, S3Endpoint

PIPELINE = """
name: {name}
source: {{format: parquet, path: "{{data}}/sales", time_column: at, columns: {{shop: string, amount: long, at: timestamp}}}}
key: [shop]
states:
  total: {{agg: sum, of: amount}}
  items: {{agg: collect, of: amount}}
max_parallelism: 64
parallelism: 2
backend: {backend}
checkpoint: {{inline_threshold_bytes: 0}}
"""


@dataclass(frozen=True)
class OnS3:
    deployment: Deployment
    store: S3Store
    bucket: str


@pytest.fixture
def here(tmp_path: Path, s3: S3Endpoint, bucket: str) -> OnS3:
    local = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    (tmp_path / "pipelines").mkdir()
    store = S3Store(bucket, endpoint=s3.direct_url, client_options={"allow_http": True})
    return OnS3(replace(local, storage_root=f"s3://{bucket}/state"), store, bucket)
