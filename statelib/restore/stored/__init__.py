"""Files of old checkpoints where they are stored: reading, copying and proving them."""
