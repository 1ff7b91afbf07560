"""Changes of sealed releases, and what verification says of them."""

from __future__ import annotations

from privmix import Release, verify
from privmix.publishing.folder import file_digests, part_layout, part_name, write_part


def rehash(folder) -> None:
    """Enter the digests of the files as they are now."""
    certificate = Release(folder).certificate
    changed = certificate.model_copy(update={"files": file_digests(folder)})
    (folder / "certificate.json").write_bytes(changed.to_bytes())


def rewrite(folder, change) -> None:
    """Write the parts again by their own writer, with other rows in them."""
    opened = Release(folder)
    tables = [list(table.iter_rows()) for table in opened.tables]
    for number, pieces in enumerate(part_layout(opened.certificate.mechanism)):
        rows = [(table, change(tables[table].pop(0))) for table, _ in pieces]
        write_part(folder / part_name(number), opened.certificate.mechanism, rows)
    rehash(folder)


def reasons(folder, **options) -> str:
    outcome = verify(folder, **options)
    assert outcome.valid == (not outcome.reasons)
    return "\n".join(outcome.reasons)
