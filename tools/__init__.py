"""What the ``make`` verbs run that is no part of the product."""
