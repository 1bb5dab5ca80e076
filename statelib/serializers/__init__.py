"""Types and their bytes. ``register_decoder`` adds one for a class of one's own."""

from statelib.serializers.java.decoders import register_decoder

__all__ = ["register_decoder"]
