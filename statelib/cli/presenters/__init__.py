"""The one way from a command to its reader: blocks of text for people, one JSON document for machines."""
