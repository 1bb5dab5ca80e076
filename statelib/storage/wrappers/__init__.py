"""Stream factories around other stream factories: they merge streams into few files, write them twice, or time them."""
