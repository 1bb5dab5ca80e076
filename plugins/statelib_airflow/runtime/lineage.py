"""Lineage of a registered checkpoint as OpenLineage's facets, sent for the task that runs; nothing where the provider
is not installed, or has nowhere to send to.

A task says it itself, as a RUNNING event of its own run: that works of TaskFlow functions, operators and sensors alike,
while methods on operators work of operators only, and outlets carry no facets.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.views.lineage import LineageDataset, LineageField
    from statelib.flows.wiring import Deployment
    from statelib.model.record import CheckpointRecord


def is_active() -> bool:
    """Whether anybody listens."""
    try:
        from airflow.providers.openlineage.api import is_openlineage_active
    except ImportError:
        return False
    return bool(is_openlineage_active())


def send(deployment: "Deployment", pipeline: "Pipeline", record: "CheckpointRecord") -> None:
    """Raises what reading the checkpoint raises; what sending raises is the provider's, which logs it."""
    if not is_active():
        return
    from airflow.providers.openlineage.api import emit_dataset_lineage

    from statelib.flows.views.lineage import lineage_of

    lineage = lineage_of(deployment, pipeline, record)
    emit_dataset_lineage(inputs=[*map(_input_of, lineage.inputs)], outputs=[*map(_output_of, lineage.outputs)])


def _input_of(dataset: "LineageDataset") -> "InputDataset":
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    read: dict[str, Any] = {}
    if dataset.touched is not None:
        read["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(rowCount=dataset.touched)
    return InputDataset(dataset.namespace, dataset.name, facets=facets(dataset), inputFacets=read)


def _output_of(dataset: "LineageDataset") -> "OutputDataset":
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    written: dict[str, Any] = {
        "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=dataset.touched, size=dataset.written_bytes
        )
    }
    return OutputDataset(dataset.namespace, dataset.name, facets=facets(dataset), outputFacets=written)


def facets(dataset: "LineageDataset") -> dict[str, Any]:
    """``schema``, ``version`` and ``dataQualityMetrics``: those of which something is known."""
    from openlineage.client.facet_v2 import data_quality_metrics_dataset, dataset_version_dataset, schema_dataset

    made: dict[str, Any] = {}
    if dataset.fields:
        made["schema"] = schema_dataset.SchemaDatasetFacet([*map(_field, dataset.fields)])
    if dataset.version:
        made["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(dataset.version)
    if dataset.rows is not None or dataset.rows_by_field:
        columns = {name: data_quality_metrics_dataset.ColumnMetrics(count=rows) for name, rows in dataset.rows_by_field}
        made["dataQualityMetrics"] = data_quality_metrics_dataset.DataQualityMetricsDatasetFacet(
            columnMetrics=columns,
            rowCount=dataset.rows,
            bytes=dataset.size_bytes,
            fileCount=dataset.files,
            lastUpdated=dataset.updated_at or None,
        )
    return made


def _field(field: "LineageField") -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    return schema_dataset.SchemaDatasetFacetFields(
        name=field.name, type=field.type, description=field.about or None, fields=[*map(_field, field.fields)]
    )
