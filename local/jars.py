"""The class path of an OpenSearch node: fetched from Maven by a lock list, verified, compiled, cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.errors import ChecksumMismatch, DownloadFailed, StackError
from local.layout import CACHE, SOURCE

# One slow mirror answer must not fail an install; jgo's own limit is 10 s.
DOWNLOAD_TIMEOUT_S = 120
DOWNLOADS_AT_ONCE = 8
COMPILER = "ecj"


@dataclass(frozen=True, slots=True)
class LockedArtifact:
    """One line of a lock list: Maven coordinates and the SHA-256 of the file."""

    group: str
    name: str
    version: str
    packaging: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Line:
    """What differs between OpenSearch lines: lock list, Java sources, language level."""

    name: str
    sources: tuple[str, ...]
    release: int

    @property
    def lock(self) -> Path:
        """The committed list `group:artifact:version[:packaging] sha256`."""
        return SOURCE / f"opensearch-{self.name}.lock"


def read_lock(path: Path) -> list[LockedArtifact]:
    """Parse a lock list; order is class path order."""
    rows = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [_artifact(coordinates, sha256) for coordinates, sha256 in rows]


def class_path(line: Line, java: Path) -> str:
    """Class path of a node, prepared on first use (a download of about 100 MB) and cached after."""
    folder = cache_folder(line)
    stamp = folder / "class-path"
    key = _key(line, java)
    with exclusive(folder):
        if stamp.exists() and (lines := stamp.read_text().splitlines())[0] == key:
            return lines[1]
        path = _prepare(line, java, folder)
        startup_cache(line).unlink(missing_ok=True)
        stamp.write_text(f"{key}\n{path}\n")
        return path


def cache_folder(line: Line) -> Path:
    """Where everything that is prepared once for a line lies, but the downloads themselves."""
    return CACHE / f"opensearch-{line.name}"


def startup_cache(line: Line) -> Path:
    """Classes as the JVM lays them out in memory; stale, and therefore removed, when the class path changes."""
    return cache_folder(line) / "node.aot"


def is_cached(line: Line) -> bool:
    """True if the line was prepared before, so that no network is needed."""
    return (cache_folder(line) / "class-path").exists()


def _artifact(coordinates: str, sha256: str) -> LockedArtifact:
    group, name, version, *packaging = coordinates.split(":")
    return LockedArtifact(group, name, version, packaging[0] if packaging else "jar", sha256)


def _key(line: Line, java: Path) -> str:
    digest = hashlib.sha256(str((CACHE, java)).encode())
    for path in (line.lock, *_inputs(line)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _inputs(line: Line) -> list[Path]:
    return [SOURCE / name for name in (*line.sources, "log4j2.properties")]


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder of the cache against other processes that prepare it too."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _prepare(line: Line, java: Path, folder: Path) -> str:
    locked = read_lock(line.lock)
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        files = list(pool.map(_fetch, locked))
    jars = [path for a, path in zip(locked, files, strict=True) if a.packaging == "jar" and a.name != COMPILER]
    for artifact, path in zip(locked, files, strict=True):
        if artifact.packaging == "zip":
            jars += _unzip(path, folder / artifact.name)
    compiler = next(path for a, path in zip(locked, files, strict=True) if a.name == COMPILER)
    classes = _compile(line, [str(java), "-jar", str(compiler)], folder / "classes", _join(jars))
    return _join([classes, *jars])


def _join(paths: list[Path]) -> str:
    return os.pathsep.join(map(str, paths))


def _fetch(artifact: LockedArtifact) -> Path:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=CACHE / "maven", timeout=DOWNLOAD_TIMEOUT_S)
    component = context.project(artifact.group, artifact.name).at_version(artifact.version)
    where = f"{artifact.group}:{artifact.name}:{artifact.version}:{artifact.packaging}"
    try:
        path = Path(component.artifact(packaging=artifact.packaging).resolve())
    except (RuntimeError, OSError, ValueError) as error:
        raise DownloadFailed(f"{where} could not be fetched from Maven Central: {error}") from error
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != artifact.sha256:
        path.unlink()
        raise ChecksumMismatch(
            f"{where} has SHA-256 {found}, the lock list says {artifact.sha256}; the file was removed"
        )
    return path


def _unzip(archive: Path, folder: Path) -> list[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(archive) as content:
        names = [name for name in content.namelist() if name.endswith(".jar") and "/" not in name]
        content.extractall(folder, names)
    return [folder / name for name in sorted(names)]


def _compile(line: Line, compiler: list[str], classes: Path, jars: str) -> Path:
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    sources = [str(path) for path in _inputs(line) if path.suffix == ".java"]
    argv = [*compiler, f"-{line.release}", "-proc:none", "-nowarn", "-d", str(classes), "-cp", jars, *sources]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"The node class for OpenSearch {line.name} does not compile:\n{done.stdout}{done.stderr}")
    shutil.copy(SOURCE / "log4j2.properties", classes)
    # a jar, because a folder on the class path rules out class data sharing
    return Path(shutil.move(shutil.make_archive(str(classes), "zip", classes), classes.with_suffix(".jar")))
