"""Joining the schemas of stored states, comparing them with the wanted schemas, and migrating entries to these."""
