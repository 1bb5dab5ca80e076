"""Values of the logical types of Flink SQL: one file per family of types, listed in ``logical_registry``.

The files of the families are ``fixed``, ``texts``, ``decimals``, ``timestamps``, ``rows``, ``arrays``, ``maps`` and
``raw``. The other files are what they share.
"""
