"""A lost or outdated catalog is made again from what lies on storage."""
