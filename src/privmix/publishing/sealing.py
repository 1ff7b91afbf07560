"""What every certificate is once its folder is sealed: a file with a digest, and one time for all files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from privmix._validate import FrozenModel
from privmix.accounting.events import NeighboringRelation
from privmix.accounting.guarantee import FALSE_ALARMS, Guarantee
from privmix.accounting.stated import TradeoffCurve

FORMAT_VERSION: Literal[1] = 1
# 1 January 2000: a date that archives of every kind can hold, the same for every folder.
_FILE_TIME = 946684800


class Sealable(FrozenModel):
    """Base of the certificates: what all of them state first, and the words that follow from it."""

    # A value, though each class has its own: the lowest pydantic cannot evaluate an annotation alone.
    _what: ClassVar[Literal["release", "model"]] = "release"

    format_version: Literal[1] = FORMAT_VERSION
    private: bool
    statement: str
    privacy_unit: Literal["record", "unit"] = "record"
    unit_column: str | None = None
    max_records_per_unit: int | None = None
    neighboring_relation: NeighboringRelation
    epsilon: float
    delta: float
    if TYPE_CHECKING:  # each certificate has it among its own fields, in its own order
        tradeoff_curve: TradeoffCurve

    @property
    def num_records(self) -> int:
        """The public number of records that was planned for."""
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed, in words: the one place that says whether anything is."""
        return Guarantee.of(
            self.epsilon,
            self.delta,
            self.neighboring_relation,
            num_records=self.num_records,
            private=self.private,
            what=self._what,
            unit_column=self.unit_column,
            max_records_per_unit=self.max_records_per_unit,
            true_positive_rate=self.tradeoff_curve.true_positive_rate(FALSE_ALARMS),
        )

    def sealed(self, *, private: bool, files: dict[str, str]) -> Self:
        """Return the certificate of these files; its words follow from ``private``."""
        changed = self.model_copy(update={"private": private, "files": files})
        return changed.model_copy(update={"statement": changed.guarantee.statement})

    def to_bytes(self) -> bytes:
        """Return the certificate as the bytes of its file."""
        return (self.model_dump_json(by_alias=True, indent=2) + "\n").encode()

    def digest(self) -> str:
        """Return the SHA-256 of the certificate's file: 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def not_private(self) -> list[str]:
        """Return the reason against a certificate that protects nobody."""
        return (
            [] if self.private else [f"certificate: private is false: {self.guarantee.statement}"]
        )


def set_file_times(folder: Path) -> None:
    """Give a folder and all in it one fixed time: how long each file took depends on the records."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (_FILE_TIME, _FILE_TIME))
