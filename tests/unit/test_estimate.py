"""The estimator: exact where all is read, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import random

import pytest

from ingest.estimate import LEAST, Drawn, Item, Strata, allocate, total


def test_what_was_read_whole_is_known() -> None:
    found = total([Drawn(3, 60, [(10, 1.0), (20, 2.0), (30, 4.0)])])
    assert (found.value, found.low, found.high) == (7.0, 7.0, 7.0)


def test_a_value_in_proportion_to_bytes_is_known_from_a_few() -> None:
    found = total([Drawn(1000, 50_000, [(10, 2.0), (70, 14.0), (33, 6.6)])])
    assert found.value == pytest.approx(10_000)
    assert found.high - found.low == pytest.approx(0, abs=1e-6)


def test_of_one_document_alone_little_is_claimed() -> None:
    found = total([Drawn(100, 1000, [(10, 5.0)])])
    assert found.value == pytest.approx(500)
    assert found.low == 0
    assert found.high > 1500


def test_empty_documents_count_by_number() -> None:
    assert total([Drawn(10, 0, [(0, 1.0), (0, 3.0)])]).value == 20
    assert total([]).value == 0


def population(draw: random.Random) -> list[Drawn]:
    """Three strata of a made-up corpus, whole."""
    strata = []
    for documents, mean in ((400, 50_000), (80, 400_000), (6, 5_000_000)):
        sizes = [max(1, int(draw.lognormvariate(0, 0.5) * mean)) for _ in range(documents)]
        values = [(size, size / 2000 * draw.lognormvariate(0, 0.4)) for size in sizes]
        strata.append(Drawn(documents, sum(sizes), values))
    return strata


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(5)
    held, runs = 0, 400
    for _ in range(runs):
        whole = population(draw)
        truth = sum(y for one in whole for _, y in one.values)
        counts = allocate({str(n): (one.documents, one.size) for n, one in enumerate(whole)}, 60)
        sampled = [
            Drawn(one.documents, one.size, draw.sample(list(one.values), counts[str(n)])) for n, one in enumerate(whole)
        ]
        found = total(sampled)
        held += found.low <= truth <= found.high
    assert 0.90 <= held / runs <= 0.995


def test_large_strata_are_read_more_and_each_a_little() -> None:
    counts = allocate({"small": (10_000, 1_000), "large": (50, 98_000), "one": (1, 1_000)}, 40)
    assert counts["one"] == 1
    assert counts["small"] == LEAST
    assert counts["large"] == LEAST + 34
    assert allocate({"few": (3, 10)}, 100) == {"few": 3}
    assert allocate({}, 10) == {}


def strata(seed: int, names: list[str]) -> Strata:
    found = Strata(keep=20, seed=seed)
    for name in names:
        found.add(Item(name, 10 + len(name)))
    return found


def test_a_sample_does_not_depend_on_the_order_of_the_listing() -> None:
    names = [f"folder/{n}.pdf" for n in range(300)]
    assert strata(1, names).draw(12) == strata(1, names[::-1]).draw(12)
    assert strata(1, names).draw(12) != strata(2, names).draw(12)
    (drawn,) = strata(1, names).draw(12).values()
    assert len(drawn) == 12


def test_every_document_is_as_likely_to_be_drawn() -> None:
    names = [f"{n}.pdf" for n in range(50)]
    counts = dict.fromkeys(names, 0)
    for seed in range(400):
        for item in strata(seed, names).draw(10)["pdf, under 100 KB"]:
            counts[item.name] += 1
    assert 50 < min(counts.values()) <= max(counts.values()) < 115  # 80 expected, 8 the standard deviation


def test_kinds_beyond_a_dozen_share_a_stratum() -> None:
    found = strata(1, [f"a.kind{n}" for n in range(30)])
    assert len(found.by_name) == 13
    assert found.by_name["other, under 100 KB"].documents == 18
