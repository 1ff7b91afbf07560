"""Tests mirror the source: a module's tests are found where its name says.

``src/privmix/<room>/<module>.py`` has its tests in ``tests/<room>/test_<module>.py``, and
``src/privmix/<room>/__init__.py`` in ``tests/<room>/test_<room>.py``; leading underscores fall
away. Tests that cut across modules stand in the folders of ``ELSEWHERE``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import privmix
from syntax import syntax_tree

SOURCE = Path(privmix.__file__).parent
TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    "whole": "the library as a whole: documentation, crashes, strangers, streams",
    "contracts": "one suite for each protocol",
    "fuzz": "inputs changed in every way",
    "mutations": "faults put in by hand",
    "benchmarks": "mirrors benchmarks/",
    "examples": "mirrors examples/",
    "experiments": "mirrors experiments/",
}
# Tests of no single module.
ALONE = {
    "accounting/pld/test_prv_agreement.py": "all of pld against an independent accountant",
    "attacks/test_broken.py": "safeguards taken away one by one",
    "cli/test_formats.py": "a declared format in every command that reads a file",
    "report/test_browser.py": "the page in a browser",
    "report/test_model_report.py": "the page of a model",
    "rounds/test_links.py": "rounds of every target but classes",
}
# Modules without a file of their own, and the tests that reach them: parts of one noun that are
# tested as one, and implementations of a protocol under its contract.
TOGETHER = {
    # The loss distribution is tested by its bounds, a back end by what it releases.
    "accounting/pld/composition": "accounting/pld/test_bounds.py",
    "accounting/pld/lattice": "accounting/pld/test_bounds.py",
    "backends/__init__": "backends/test_dask.py",
    "backends/dask_cluster": "backends/test_dask.py",
    "backends/dask_run": "backends/test_dask.py",
    "backends/dask_worker": "backends/test_dask.py",
    "backends/local": "test_engine.py",
    "backends/parts": "running/test_journal.py",
    # Parts of an audit, tested by what it finds.
    "auditing/likelihood": "auditing/test_canaries.py",
    "auditing/training": "auditing/test_audit.py",
    # Commands that are tested beside those that make what they read.
    "cli/_flags": "planning/test_options.py",
    "cli/_signing": "publishing/test_signature.py",
    "cli/_stopping": "whole/test_crashes.py",
    "cli/demo": "datasets/test_demo.py",
    "cli/evaluate": "cli/test_predict.py",
    "cli/sign": "publishing/test_signature.py",
    "comparing/page": "comparing/test_measures.py",
    # Models of private training are tested by the steps that are taken on them.
    "dpsgd/formed_gradients": "dpsgd/test_linear_head.py",
    "dpsgd/head": "dpsgd/test_gradients.py",
    "dpsgd/network": "dpsgd/test_gradients.py",
    "dpsgd/opening": "dpsgd/test_trainer.py",
    "dpsgd/private_views": "dpsgd/test_gradients.py",
    # Extractors keep one contract.
    "features/__init__": "contracts/test_extractors.py",
    "features/applying": "cli/test_predict.py",
    "features/base": "contracts/test_extractors.py",
    "features/efficientnet": "contracts/test_extractors.py",
    "features/identity": "contracts/test_extractors.py",
    "features/kept": "cli/test_extract.py",
    "features/open_clip": "contracts/test_extractors.py",
    "features/pretrained": "contracts/test_extractors.py",
    "features/timm": "whole/test_real_tables.py",
    # What strangers send is read by few functions, tested by what is sent.
    "foreign/files": "whole/test_hostile_folders.py",
    "foreign/tensors": "fuzz/test_fuzz.py",
    "foreign/thrift": "fuzz/test_fuzz.py",
    # Readers are tested by what they make of files and frames.
    "inputs/arrays": "whole/test_streaming.py",
    "inputs/columns": "inputs/test_readers.py",
    "inputs/delimited": "whole/test_real_tables.py",
    "inputs/extractor": "features/test_extraction.py",
    "inputs/missing": "whole/test_real_tables.py",
    "inputs/raw/blocks": "inputs/raw/test_opening.py",
    "inputs/raw/scans": "inputs/raw/test_opening.py",
    "inputs/tally": "whole/test_real_tables.py",
    "inputs/unlabelled": "cli/test_predict.py",
    "records/binding": "inputs/test_readers.py",
    # Parts of a learner, tested by what is learnt.
    "learners/class_metrics": "learners/test_scores.py",
    "learners/predictions": "cli/test_predict.py",
    "learners/record_norm": "synthesis/test_synthesizer.py",
    # The rounds of an adaptive release are one mechanism.
    "mechanism/residual": "rounds/test_residuals.py",
    "rounds/public_model": "rounds/test_residuals.py",
    "planning/flags": "planning/test_plan.py",
    "planning/recheck": "test_engine.py",
    "preprocess/steps": "preprocess/test_preprocessor.py",
    # The folder of a release is tested by verification and by those who tamper with it.
    "publishing/allowed_signers": "publishing/test_signature.py",
    "publishing/card": "publishing/test_release.py",
    "publishing/folder": "publishing/test_verification.py",
    "publishing/grid": "whole/test_hostile_folders.py",
    "publishing/parquet_layout": "whole/test_hostile_folders.py",
    "publishing/sealing": "running/test_ledger.py",
    "running/finished": "features/test_extraction.py",
    "running/ledger_account": "running/test_ledger.py",
    "schema/table": "features/test_tabular.py",
    "schema/text_format": "cli/test_formats.py",
    "spending": "cli/test_ledger.py",
    # Models, forms and files of records are tested by the records that are drawn.
    "synthesis/file": "synthesis/test_synthesizer.py",
    "synthesis/model": "synthesis/test_synthesizer.py",
    "synthesis/records": "synthesis/test_synthesizer.py",
    # Baselines keep one contract.
    "baselines/linear_probe": "baselines/test_base.py",
    "baselines/perturbation": "baselines/test_base.py",
    "baselines/prototypes": "baselines/test_base.py",
    "baselines/second_moments": "baselines/test_base.py",
    "baselines/stratified": "baselines/test_base.py",
    # A page is tested by what it says, an attack by its scores.
    "attacks/__init__": "attacks/test_scores.py",
    "dpsgd/__init__": "dpsgd/test_trainer.py",
    "planning/summary": "planning/test_plan.py",
    "report/background": "report/test_facts.py",
    "report/blocks": "report/test_page.py",
    "report/deployment": "report/test_checklist.py",
    "report/example": "report/test_facts.py",
    "report/figures": "report/test_page.py",
    "report/protection": "report/test_facts.py",
    "report/words": "report/test_page.py",
    "__main__": "cli/test_app.py",
}


def computes(path: Path) -> bool:
    """Tell whether a file holds code, and not only a docstring and names of other modules."""
    tree = syntax_tree(path)
    return path.stem != "__init__" or any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body
    )


def mirror(module: Path) -> Path:
    """Return the file of a module's tests, from the folder of the tests."""
    path = module.relative_to(SOURCE)
    name = ("privmix", *path.parts)[-2] if path.stem == "__init__" else path.stem.strip("_")
    return path.parent / f"test_{name}.py"


def modules() -> dict[str, Path]:
    paths = [path for path in SOURCE.rglob("*.py") if computes(path)]
    return {path.relative_to(SOURCE).with_suffix("").as_posix(): path for path in paths}


def test_every_module_has_tests_where_its_name_says():
    for name, path in modules().items():
        own = (TESTS / mirror(path)).is_file()
        assert own or name in TOGETHER, f"{name} has no {mirror(path)}"
        assert not (own and name in TOGETHER), f"{name} has a {mirror(path)}: off the list"


def test_every_file_of_tests_has_its_module():
    due = {mirror(path).as_posix() for path in SOURCE.rglob("*.py")} | set(ALONE)
    found = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strays = {p.as_posix() for p in found if p.parts[0] not in ELSEWHERE} - due
    assert not strays


def test_the_lists_are_true():
    assert set(TOGETHER) <= set(modules())
    for name in {*TOGETHER.values(), *ALONE}:
        assert (TESTS / name).is_file(), name
    for folder in ELSEWHERE:
        assert (TESTS / folder).is_dir(), folder


def test_the_slow_tests_exist():
    """``slow.txt`` keeps up with the tests, so that what it lists is left out by ``make quick``."""
    for line in (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines():
        file, *names = line.split("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        assert all(f"def {name}(" in text or f"class {name}" in text for name in names), line
