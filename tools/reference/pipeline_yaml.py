"""The text of docs/reference/pipeline-yaml.md, made from the model of a pipeline file."""

from statelib.definition.reference.keys import DescribedKey, keys
from tools.reference.markdown import NOTICE, code, table

INTRODUCTION = """\
# Pipeline file

One YAML file in `STATELIB_PIPELINES` is one pipeline. `statelib pipelines validate` says, line by line, what is wrong
with a file; unknown keys are refused, with the one that was probably meant. Whether the parts fit together is checked
once each part has its form, so a corrected file may show further problems. Durations are `500ms`, `90s`, `15m`, `1h`
or `7d`. Where a list of text is expected, a single text may stand without brackets. An editor with a
YAML language server completes and checks keys, and shows these descriptions: `statelib pipelines schema >
pipeline.schema.json`, and `# yaml-language-server: $schema=pipeline.schema.json` as the first line of a pipeline file.

A whole file is in the [tutorial](../tutorial.md); the demo's are in `dags/pipelines/`.
"""


def page() -> str:
    """Return the text of the page."""
    key_list = list(keys())
    sections = [INTRODUCTION, "## Top level\n", _table([key for key in key_list if "." not in key.path])]
    for name in dict.fromkeys(key.path.split(".")[0] for key in key_list if "." in key.path):
        below = [key for key in key_list if key.path.startswith(f"{name}.")]
        sections += [f"## {name}\n", _table(below)]
    return NOTICE.format(source="statelib/definition") + "\n".join(sections)


def _table(chosen: list[DescribedKey]) -> str:
    rows = [(code(key.path), key.type, _default(key), key.description) for key in chosen]
    return table(("key", "type", "default", "what it means"), rows)


def _default(key: DescribedKey) -> str:
    plain = key.default in ("none", "see below")
    return "**required**" if not key.default else key.default if plain else code(key.default)
