"""Do CNNs of 52k parameters do worse than those of 26k, at the same budget? (DFS paper, A.1.)

    PRIVMIX_DATA=data python -m experiments.dfs.cnn --quick

The appendix's Figure 1 has the wider network 5 points lower on MNIST after DP-SGD; it states no budget.
Both are trained here by the same plan, at every learning rate of a grid, which ``validation`` (public
images out of the training set) may choose from.
"""

from __future__ import annotations

import itertools

from experiments.bao2023 import common
from experiments.harness import Experiment, parser

from privmix import dpsgd

KEYS = ("model", "epsilon", "rate", "run")


def main() -> None:
    """Measure both networks."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, KEYS, arguments)
    quick = arguments.quick
    size, epochs, judged = (2000, 8, 2000) if quick else (50_000, 20, 10_000)
    train = common.read("mnist", "train")
    records, validation = train.part(0, size), train.part(len(train.images) - judged, judged)
    test = common.read("mnist", "test").part(0, judged)
    epsilons, rates = ((8.0,), (1.0,)) if quick else ((1.0, 3.0, 8.0), (0.5, 1.0, 2.0))
    for model, epsilon, rate, run in itertools.product(
        ("cnn-26k", "cnn-52k"), epsilons, rates, range(3)
    ):

        def measure(
            model: str = model, epsilon: float = epsilon, rate: float = rate, run: int = run
        ) -> dict[str, float]:
            plan = common.training_plan(
                records,
                common.Plan.plain(),
                epsilon=epsilon,
                epochs=epochs,
                batch_size=250 if quick else 500,
                learning_rate=rate,
            )
            network = dpsgd.Network(dpsgd.make_model(model, 1, 10, seed=run))
            trained = common.train(records, plan, network, run)
            scores = (100 * trained.score(*judge) for judge in (validation, test))
            return dict(zip(("validation", "accuracy"), scores, strict=True))

        values = (model, epsilon, rate, run)
        experiment.measure(dict(zip(KEYS, values, strict=True)), measure)
    experiment.show("validation", "accuracy")


if __name__ == "__main__":
    main()
