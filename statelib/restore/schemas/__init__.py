"""Schemas of stored states: united, matched with the wanted ones, and migrated to them."""
