"""A person's own folder: every file is a document, or it is told why not."""

from __future__ import annotations

import os
from pathlib import Path

from local.corpus_sources import own_documents


def loaded(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    told: list[str] = []
    return {document.key: document.body for document in own_documents(folder, told.append)}, told


def test_every_file_is_a_document_by_its_path_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.pdf", "a/نامه.md", "a b+c%20.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found, told = loaded(tmp_path)
    assert list(found) == ["a b+c%20.txt", "a/z.pdf", "a/نامه.md", "b.txt"]
    assert found["a/z.pdf"] == b"a/z.pdf"
    assert told == []


def test_hidden_files_are_counted_and_not_loaded(tmp_path: Path) -> None:
    for name in (".git/config", ".git/objects/ab", ".DS_Store", "kept/.env", "kept/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found, told = loaded(tmp_path)
    assert list(found) == ["kept/a.txt"]
    assert told == ["  left out: 4 hidden files, whose name or folder begins with a dot"]


def test_what_can_not_be_loaded_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "line\nbreak.txt").touch()
    (tmp_path / "lost.pdf").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/latin-\xe9.txt")).touch()
    (tmp_path / "good.txt").touch()
    found, told = loaded(tmp_path)
    assert list(found) == ["good.txt"]
    assert sorted(told) == [
        "  left out: 'latin-\\udce9.txt' is not UTF-8, so it cannot be a key",
        "  left out: 'line\\nbreak.txt' has a control character in its name, which an S3 listing cannot carry",
        "  left out: 'lost.pdf' is no file, or a link that leads nowhere",
        "  left out: 'pipe' is no file, or a link that leads nowhere",
    ]
