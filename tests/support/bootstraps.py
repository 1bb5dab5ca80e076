"""A file of ``statelib bootstrap`` whose operator has the entries of a checkpoint."""

HISTORY = """\
name: history
operators:
  activity:
    key: {type: string, of: key}
    rows: {snapshot: sales/5, state: total}
    states:
      sold: {kind: value, type: long, of: value.sold}
"""
