"""The catalog's tables: their columns, rows as values, and what each column may hold."""
