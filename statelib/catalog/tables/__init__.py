"""The catalog's tables: their columns, conversion of rows to values, and the allowed values of each column."""
