"""Events of a data interval, and which subtask owns each of them."""
