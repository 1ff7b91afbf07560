"""Write ``slow.txt``, the tests that ``make quick`` leaves out, from what a whole run took.

    pytest -n auto --junitxml=times.xml && python tests/slowest.py times.xml --seconds 100

Leaves out the tests that take longest, all parameters of one together, until the others take
``--seconds`` of one processor.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).with_name("slow.txt")


def name_of(case: ElementTree.Element) -> str:
    """Return a test's name as ``slow.txt`` has it: path::class::function, without parameters."""
    *folders, last = case.attrib["classname"].removeprefix("tests.").split(".")
    classes = [last] if last[:1].isupper() else []
    file = "/".join(folders if classes else [*folders, last])
    return "::".join([f"{file}.py", *classes, case.attrib["name"].partition("[")[0]])


def slowest(times: Counter[str], seconds: float) -> list[str]:
    """Return the fewest tests without which the others take at most ``seconds``."""
    left, found = sum(times.values()), []
    for name, taken in times.most_common():
        if left <= seconds:
            break
        found.append(name)
        left -= taken
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("times", help="what pytest --junitxml wrote")
    parser.add_argument("--seconds", type=float, default=100.0)
    arguments = parser.parse_args()
    times: Counter[str] = Counter()
    for case in ElementTree.parse(arguments.times).iter("testcase"):
        times[name_of(case)] += float(case.attrib["time"])
    LIST.write_text("".join(f"{name}\n" for name in slowest(times, arguments.seconds)))


if __name__ == "__main__":
    main()
