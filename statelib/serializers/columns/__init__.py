"""Tools to build codecs: their port, Arrow buffers, cursors into bytes, and the arithmetic of Java's hash codes."""
