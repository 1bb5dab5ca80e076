"""The stories of the product, one per folder: what a run, a restore, a savepoint or a cleanup does, step by step."""
