"""The file through which the Spark job of a preview hands its result over: the storage is the one place that the
driver, which may run in a cluster, and the process that waits for the job both reach.

It is task-owned state of an attempt that no checkpoint refers to. So if nobody takes it, the orphan sweep removes it.
"""

from statelib.definition.pipeline import Pipeline
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.handles import FileStateHandle
from statelib.model.ids import AttemptId
from statelib.storage import registry
from statelib.storage.names import TASK_OWNED_DIRECTORY, file_prefix
from statelib.storage.ports.kind import CheckpointStorage, StorageSettings

_SUBTASK = 0


def store_preview(deployment: Deployment, pipeline: Pipeline, attempt: AttemptId, text: str) -> None:
    """Store the text of a preview for :func:`take_preview`."""
    stream = _storage(deployment, pipeline).create_task_owned_state_stream(attempt, _SUBTASK)
    stream.write(text.encode())
    stream.close_and_get_handle()


def take_preview(deployment: Deployment, pipeline: Pipeline, attempt: AttemptId) -> str:
    """Return the text that an attempt stored, and remove its file.

    Raises NotFoundError (``no-preview``)."""
    directory = f"{deployment.root_uri().rstrip('/')}/{pipeline.name}/{TASK_OWNED_DIRECTORY}"
    prefix = file_prefix(attempt, _SUBTASK)
    for file in deployment.remover().list_files(directory):
        if file.path.startswith(prefix):
            handle = FileStateHandle(f"{directory}/{file.path}", file.size_bytes)
            text = str(registry.PLACES.kind(directory).reader(directory, None, directory).read(handle), "utf-8")
            _storage(deployment, pipeline).create_task_owned_checkpoint_state_toolset(attempt, _SUBTASK).discard(handle)
            return text
    raise NotFoundError(
        f"{pipeline.name}: the preview of attempt {attempt} is not in {directory}",
        kind="no-preview",
        hint="clear the task: it compares again",
    )


def _storage(deployment: Deployment, pipeline: Pipeline) -> CheckpointStorage:
    """Return the storage of the pipeline that makes a file of each stream, however small."""
    settings = StorageSettings(pipeline.name, 0, deployment.work_directory)
    return registry.PLACES.storage(deployment.storage_root, settings)
