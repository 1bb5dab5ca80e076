"""The lineage of a registered checkpoint as facets of OpenLineage, sent for the task that runs.

Nothing is sent if the OpenLineage provider is not installed, or has no receiver. The lineage is a RUNNING event of the
task's own run. This works in functions, operators and sensors; the provider's methods work in operators only, and
outlets have no facets.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.views.lineage import LineageDataset, LineageField
    from statelib.flows.wiring import Deployment
    from statelib.model.record import CheckpointRecord


def is_active() -> bool:
    """Return whether the OpenLineage provider is installed and has a receiver."""
    try:
        from airflow.providers.openlineage.api import is_openlineage_active
    except ImportError:
        return False
    return bool(is_openlineage_active())


def send(deployment: "Deployment", pipeline: "Pipeline", record: "CheckpointRecord") -> None:
    """Send the lineage of a checkpoint. Raise what reading the checkpoint raises; the provider logs errors of
    sending."""
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
    """Return the facets ``schema``, ``version`` and ``dataQualityMetrics``. A facet without content is left out."""
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
