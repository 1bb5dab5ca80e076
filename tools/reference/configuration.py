"""The text of docs/reference/configuration.md, made from the variables that the wiring and the storages read."""

from statelib.flows.wiring import LOGGING, NETWORK, OPTIONAL, VARIABLES
from statelib.storage.objects.uris import SCHEMES
from tools.reference.markdown import NOTICE, code, table

INTRODUCTION = """\
# Configuration

A deployment is described by environment variables, the same ones for the command line, for Airflow's workers, and for
Spark's driver and executors. What is true of one pipeline is in [its file](pipeline-yaml.md); masters and resources are
Spark's own configuration (`spark_default`, Airflow's connection, or `statelib run --master --conf`). Secrets belong in
the environment, never in a URI of storage: such a URI is refused.
"""


def page() -> str:
    """Return the text of the page."""
    rows = [(code(name), "yes", meaning) for name, meaning in VARIABLES.items()]
    rows += [(code(name), "no", meaning) for name, meaning in (OPTIONAL | LOGGING | NETWORK).items()]
    storages = [(code(scheme.example), scheme.settings) for scheme in SCHEMES.values()]
    return NOTICE.format(source="statelib/flows/wiring.py and statelib/storage/objects/uris.py") + "\n".join(
        (
            INTRODUCTION,
            "## The deployment\n",
            table(("variable", "required", "meaning"), rows),
            "## Object storage\n",
            "For `STATELIB_STORAGE`, targets of savepoints and paths of snapshots. A role or an identity of the",
            "machine stands in for the keys.\n",
            table(("URI", "settings in the environment"), storages),
        )
    )
