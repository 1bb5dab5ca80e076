"""The ports of storage: protocols and the values that they exchange. Every kind of storage implements all of them."""
