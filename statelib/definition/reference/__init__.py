"""The descriptions of the keys of a pipeline file, as a document and as a JSON schema for editors."""
