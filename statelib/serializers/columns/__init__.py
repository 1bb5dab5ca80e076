"""Building blocks of codecs: the port, Arrow buffers, cursors into bytes, and Java's hash codes."""
