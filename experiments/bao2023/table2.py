"""Tables 2 and 11: DP-Mix-Self against Self-Aug, networks trained from scratch.

PRIVMIX_DATA=data python -m experiments.bao2023.table2 --quick
"""

from __future__ import annotations

import itertools

from experiments.bao2023.table1 import FULL, MIDDLE, QUICK, accuracy, arms
from experiments.harness import Experiment, parser

KEYS = ("data", "method", "epsilon", "rate", "run")


def main() -> None:
    """Measure both methods, and single records as they are, at all budgets."""
    options = parser(__doc__)
    options.add_argument("--mnist", action="store_true", help="1,000 MNIST images: an hour")
    arguments = options.parse_args()
    experiment = Experiment(__file__, KEYS, arguments)
    size = QUICK if arguments.quick else MIDDLE if arguments.mnist else FULL
    epsilons = (8.0,) if arguments.quick else (None, 8.0, 4.0, 2.0, 1.0)
    for epsilon, rate, run, method in itertools.product(
        epsilons, size.rates, range(size.runs), ("DP-SGD", "Self-Aug", "DP-Mix-Self")
    ):
        experiment.measure(
            dict(zip(KEYS, (size.named, method, epsilon, rate, run), strict=True)),
            lambda method=method, epsilon=epsilon, rate=rate, run=run: accuracy(
                size, arms(size)[method, 1], epsilon, 1, rate, run
            ),
        )
    experiment.show("validation", "accuracy")


if __name__ == "__main__":
    main()
