"""Programs that the ``make`` verbs run and that are no part of the product."""
