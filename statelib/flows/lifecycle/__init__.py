"""The life of a pipeline as a whole: whether it runs, how it is stopped and resumed, and how it gets another name."""
