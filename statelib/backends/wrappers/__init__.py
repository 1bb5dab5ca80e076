"""Backends around another backend, which count, record or complete what passes through them."""
