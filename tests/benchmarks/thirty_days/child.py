"""``python -m tests.benchmarks.thirty_days.child NAME DIRECTORY MODE``: the process of one entrant.

Each line of its input is a command, and each is answered with a line: ``ready``, ``day NUMBER DIRECTORY``,
``export DIRECTORY`` and ``end``. Answers go to the first output; what the programs print goes to the second."""

import os
import sys
from pathlib import Path

from tests.benchmarks.thirty_days.keeper import ENTRANTS, MODES


def main(name: str, root: str, mode: str) -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        (entrant,) = [entrant for entrant in ENTRANTS if entrant.name == name]
        (checked_mode,) = [possible for possible in MODES if possible == mode]
        keeper = entrant.keeper(Path(root), checked_mode)
        for line in sys.stdin:
            command, *words = line.split()
            if command == "day":
                keeper.day(int(words[0]), Path(words[1]))
            elif command == "export":
                keeper.export(Path(words[0]))
            elif command == "end":
                keeper.close()
            answers.write("done\n")
            if command == "end":
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
