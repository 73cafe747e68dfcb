"""The page of a run as a browser shows it: Chromium draws it, asks nobody, and finds no fault in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingest.report_page import page
from tests.run_report import SAMPLES, full

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; apt-get install chromium brings one")

# What a page can only say of itself once it was laid out: sizes of its charts, and what it fetched.
PROBE = """<script>addEventListener('load', () => {
  const box = e => { const r = e.getBoundingClientRect(); return Math.round(r.width) + 'x' + Math.round(r.height) };
  const svgs = [...document.querySelectorAll('svg')].map(box).join(' ');
  const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  document.title = 'svgs ' + svgs + '; fetched ' + performance.getEntriesByType('resource').length
    + '; too wide ' + wide.length + '; rows ' + document.querySelectorAll('tbody tr').length;
})</script></body>"""


def shown(html: str, folder: Path, width: int) -> str:
    """The title that the probe gave the page in a window of this width."""
    assert CHROMIUM is not None
    (folder / "page.html").write_text(html.replace("</body>", PROBE))
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},900",
        "--virtual-time-budget=3000",
        "--dump-dom",
        f"file://{folder}/page.html",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", done.stdout)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("width", [500, 900, 1600])
def test_charts_have_size_and_the_page_fits_its_window(tmp_path: Path, width: int) -> None:
    told = shown(page(full(), SAMPLES, {16 * n: 10 * n for n in range(1, 16)}, 254), tmp_path, width)
    sizes = [tuple(map(int, size.split("x"))) for size in re.findall(r"\d+x\d+", told)]
    assert len(sizes) == 4, told
    assert all(across > 400 and down > 80 for across, down in sizes), told
    assert "fetched 0" in told
    assert "too wide 0" in told
    assert int(told.rpartition("rows ")[2]) > 20
