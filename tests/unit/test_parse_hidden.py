from __future__ import annotations

import pytest

from ingest.parse.hidden import shows_unseen


@pytest.mark.parametrize(
    "content",
    [
        b"BT /F1 11 Tf 3 Tr (secret) Tj ET",
        b"BT 3\nTr\n[(secret)]TJ ET",
        b"1 g BT (secret) Tj ET",
        b"1 1 1 rg BT (secret) Tj ET",
        b"0.99 .98 1.0 rg BT (secret)' ET",
        b"0 0 0 0 k BT (secret) Tj ET",
        b"/DeviceRGB cs 1 1 1 sc BT (secret) Tj ET",
        b"1 g q BT (secret) Tj ET Q",
        b"0 g BT (seen) Tj 1 g (secret) Tj ET",
    ],
)
def test_streams_that_can_hold_unseen_text(content: bytes) -> None:
    assert shows_unseen(content)


@pytest.mark.parametrize(
    "content",
    [
        b"BT /F1 11 Tf (seen) Tj ET",
        b"0 g BT (seen) Tj ET",
        b"BT 0 Tr (seen) Tj ET",
        b"1 g 0 0 100 100 re f 0 g BT (seen) Tj ET",
        b"q 1 1 1 rg 0 0 100 100 re f Q BT (seen) Tj ET",
        b"BT 3 Tr 0 Tr (seen) Tj ET",
        b"0.5 g BT (seen) Tj ET",
        b"0 0 0 1 k BT (seen) Tj ET",
        b"11 g BT",
        b"",
    ],
)
def test_streams_that_can_not(content: bytes) -> None:
    assert not shows_unseen(content)
