"""Types and their bytes: one type, or one family of types, is one file.

Such a file makes a ``TypeSupport`` (``aspects/type_support.py``). It holds everything about the type that needs Arrow:
how its values become bytes, are skipped, are shown as JSON and are hashed, and how the type is written as a serializer
snapshot. ``registry`` lists all of them. To add a type, write its file and add a line to the registry. A type that is
not a scalar also needs its words in ``type_text``, which pipeline files use where Arrow must not be imported.

From the bottom up there are ``columns`` (tools to build codecs), ``aspects`` (the port of a type), the types
themselves (``scalars``, ``temporal``, ``containers``, ``java``, ``sql``), ``registry``, modules that use one aspect of
all types (``typed_json``, ``skippers``, ``snapshots``, ``type_text``, ``plain_hashes``), and ``entries`` (keys and
values of state). ``register_decoder`` adds a decoder for values of a user's own class.
"""

from statelib.serializers.java.decoders import register_decoder

__all__ = ["register_decoder"]
