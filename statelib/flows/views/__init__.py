"""What people look at: lists, portraits and comparisons of checkpoints. Nothing here changes anything."""
