"""A scenario's steps, done in order; what differs from its expectations, in words."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ingest.chunk import STRATEGIES
from ingest.config import keys
from ingest.parse.sandbox import Sandbox
from jobs.__main__ import VERBS
from tests.harness import Outcome, Site, Stack, digest
from tests.scenarios.cases import Folder
from tests.scenarios.faults import Switches
from tests.scenarios.proxy import Faults

Step = Mapping[str, Any]
CONFIG = {"parse.segment_timeout_s": "parse.timeout_s", "parse.segment_pages": "segments.pages"}
# what the cases say of a configuration that is always so here: the embedder's own tokens are counted, windows refresh
ALWAYS = ("chunk.unit", "verify.search_refresh", "embed.model_label")
WORDS = ("harbour", "ledger", "orchard", "engine", "archive", "valley", "kettle", "window", "method", "border")


class NotYet(Exception):
    """The product has no such thing yet."""


class Scenario:
    """One scenario on a bucket, an alias and a ledger of its own."""

    def __init__(self, stack: Stack, folder: Folder, work: Path, script: Step, proxy: tuple[str, Faults]) -> None:
        self.folder = folder
        self.script = script
        self.faults = proxy[1]
        self.switches = Switches(work, proxy[1])
        self.differences: list[str] = []
        self.runs: list[Outcome] = []  # since the last expect
        self.versions: dict[tuple[str, str], str] = {}  # key and name of a version → version id
        self.calls: dict[str, Any] = {}
        self.counted_from = 0.0
        self.waits_for: set[str] = set()
        overrides = {"index.url": proxy[0], "index.retry_budget_s": 60, **configured(script.get("config", {}))}
        self.site = Site(stack, work, overrides)
        self.overrides = overrides

    def play(self) -> None:
        """Does all steps. Raises NotYet at the first one that the product can not do."""
        _require(self.script)
        for step in self.script["steps"]:
            ((verb, asked),) = step.items()
            STEPS[verb](self, asked or {})

    # ------------------------------------------------------------ source

    def put(self, asked: Step) -> None:
        self.begin_anew()
        if "dir" in asked:
            for path in sorted((self.folder.files / asked["dir"]).rglob("*")):
                if path.is_file() and "v2" not in path.parts:
                    self._put(path.name, path.read_bytes(), asked.get("as", ""))
            return
        body = (self.folder.files / asked["file"]).read_bytes() if "file" in asked else None
        names = asked.get("keys") or [asked["key"]]
        given = asked.get("as", "")
        labels = given if isinstance(given, list) else [given] * len(names)
        for key, label in zip(names, labels, strict=True):
            self._put(key, body if body is not None else _prose(asked["text"], key), label or "")

    def _put(self, key: str, body: bytes, label: str) -> None:
        self.versions[key, label] = self.site.put({key: body})[key]

    def remove(self, asked: Step) -> None:
        self.site.remove(asked["key"])

    def purge(self, asked: Step) -> None:
        version = self.versions[asked["key"], asked["version"]]
        self.site.s3.delete_object(Bucket=self.site.bucket, Key=asked["key"], VersionId=version)

    def wait(self, asked: Step) -> None:
        time.sleep(float(asked["s"]))

    # ------------------------------------------------------------ faults

    def fault(self, asked: Step) -> None:
        self.begin_anew()
        self.switches.on(asked)

    def heal(self, _: Step) -> None:
        self.switches.heal()

    def index_state(self, asked: Step) -> None:
        search = self.site.search
        if name := asked.get("create_index"):
            search.indices.create(index=self.named(name))
            for number in range(asked["documents"]):
                search.index(index=self.named(name), id=str(number), body={"n": number}, refresh=True)
        if name := asked.get("delete_index"):
            search.indices.delete(index=self.named(name))
        if name := asked.get("remove_alias"):
            found = list(search.indices.get_alias(name=self.named(name)))
            search.indices.delete_alias(index=found, name=self.named(name))
            time.sleep(asked["for_s"])
            search.indices.put_alias(index=found, name=self.named(name))

    def named(self, name: str) -> str:
        """The alias of this scenario where its script names it."""
        return self.site.alias if name == self.script.get("config", {}).get("index.alias") else name

    # ------------------------------------------------------------ runs

    def run(self, asked: Step) -> None:
        if asked["job"] not in VERBS:
            raise NotYet(f"`ingest {asked['job']}`")
        if "kill" in asked:
            raise NotYet(f"a kill of {asked['kill']['who']} {asked['kill']['when']}")
        args = [word for name, value in asked.get("args", {}).items() for word in _option(name, value)]
        for key, value in configured(asked.get("config", {})).items():
            args += ["--set", f"{key}={value}"]
        environment = self.switches.write(self.site)
        if self.switches.waits_for:
            self.waits_for.add(self.switches.waits_for)
        started = self.site.start(*args, verb=asked["job"], environment=environment)
        self._during(asked.get("during"), started)
        try:
            self.runs.append(self.site.finish(started, timeout_s=asked.get("max_s", 280)))
        except subprocess.TimeoutExpired:
            started.kill()
            self.differences.append(f"the run was not over after {asked.get('max_s', 280)} s")
            self.runs.append(Outcome(-1, "", {}))

    def _during(self, during: Step | None, job: subprocess.Popen[str]) -> None:
        if during is None:
            return
        while job.poll() is None and not self.site.ledger_rows("SELECT 1 FROM history WHERE to_state = 'parsing'"):
            time.sleep(0.05)
        for step in during["steps"]:
            ((verb, asked),) = step.items()
            STEPS[verb](self, asked)

    def call(self, asked: Step) -> None:
        if "chunk_ids" in asked:
            self.calls[asked["as"]] = [digest(*map(str, parts)) for parts in asked["chunk_ids"]]
            return
        if "parse_in_threads" in asked:
            self.calls[asked["as"]] = _in_threads(self.folder, asked["parse_in_threads"])
            return
        raise NotYet(f"a call of {next(name for name in asked if name != 'as')}")

    # ------------------------------------------------------------ what was counted

    def counted(self) -> Counter[str]:
        """Numbers since the last expect, by the names that the cases use."""
        found: Counter[str] = Counter()
        for run in self.runs:
            chunks = run.report.get("chunks", {})
            found["parsed_pages"] += run.report.get("pages", 0)
            found["embedded_texts"] += chunks.get("embedded", 0)
            found["deletes"] += chunks.get("deleted", 0)
            found["truncated_chunks"] += chunks.get("truncated", 0)
            found["reused_vectors"] += chunks.get("reused", 0)
            found["items_sent_again"] += sum(run.report.get("bulk_retries", {}).values())
        found["bulk_requests"] = self.faults.seen["bulk_requests"]
        since = f"SELECT 1 FROM dead_letters WHERE created_at > {self.counted_from}"
        found["dead_letters"] = len(self.site.ledger_rows(since))
        found["s3_reads"] = sum(run.report.get("pages", 0) for run in self.runs)
        return found

    def begin_anew(self) -> None:
        """Counts from here: after an expect, and after what changes the world that a run was told of before."""
        self.runs.clear()
        self.faults.seen.clear()
        self.counted_from = time.time()


def configured(config: Step) -> dict[str, Any]:
    """The script's keys as ours. Raises NotYet for one that there is nothing for."""
    known = {name for name, _, _ in keys()}
    found: dict[str, Any] = {}
    for name, value in config.items():
        ours = CONFIG.get(name, name)
        if ours in ALWAYS or name == "index.alias":
            continue
        if ours not in known:
            raise NotYet(f"the configuration key {name}")
        if ours == "chunk.strategy" and value not in STRATEGIES:
            raise NotYet(f"the chunking strategy {value}")
        if ours == "embed.model" and str(value).startswith("stub-"):
            found[ours] = "hashing:" + ":".join(str(value).split("-")[1:])
        else:
            found[ours] = value
    return found


def _require(script: Step) -> None:
    for need in script.get("needs", ()):
        if need != "real_embedder":
            raise NotYet(f"what it needs: {need}")
    unknown = {verb for step in script["steps"] for verb in step} - STEPS.keys()
    if unknown:
        raise NotYet(f"the step {', '.join(sorted(unknown))}")
    for asked in (step["run"] for step in script["steps"] if "run" in step):
        if asked["job"] not in VERBS:
            raise NotYet(f"`ingest {asked['job']}`")


def _option(name: str, value: Any) -> Iterator[str]:
    if name == "dedup":
        if "source.dedup" in {key for key, _, _ in keys()}:
            yield from ("--set", f"source.dedup={str(value).lower()}")
    elif name == "into" and value == "new_generation":
        yield from ("--set", "index.m=17")  # another mapping is another generation of the same chunks
    elif name == "into":
        raise NotYet(f"--into {value}")
    else:
        yield from (f"--{name.replace('_', '-')}", str(value))


def _in_threads(folder: Folder, asked: Step) -> str:
    """``refused`` where a busy reader refuses a second thread, else ``mixed`` or ``serial`` by what came out."""
    paths = [str(folder.files / name) for name in asked["files"]]
    refused, wrong = 0, 0
    with Sandbox(60, 2048) as box, ThreadPoolExecutor(asked["threads"]) as pool:
        last = {path: box.inspect(path, path).pages for path in paths}
        alone = {path: box.parse(path, "pdf", 1, last[path]) for path in paths}
        for _ in range(asked["rounds"]):
            for path, future in [(path, pool.submit(box.parse, path, "pdf", 1, last[path])) for path in paths]:
                try:
                    wrong += future.result() != alone[path]
                except RuntimeError:
                    refused += 1
    return "mixed" if wrong else "refused" if refused else "serial"


def _prose(text: str, key: str) -> bytes:
    words = " ".join(random.Random(key).choice(WORDS) + str(n) for n in range(60))
    return text.replace("{prose}", words).replace("{key}", key).encode("utf-8", "surrogatepass")


def _expect(scenario: Scenario, asked: Step) -> None:
    from tests.scenarios.expect import differences

    if scenario.switches.waits_for:  # what must come out is told for a product that has it
        scenario.begin_anew()
        return
    scenario.differences += differences(scenario, asked)
    scenario.begin_anew()


def _unknown(verb: str) -> Callable[[Scenario, Step], None]:
    def refuse(scenario: Scenario, asked: Step) -> None:
        raise NotYet(f"the step {verb}")

    return refuse


STEPS: dict[str, Callable[[Scenario, Step], None]] = {
    "put": Scenario.put,
    "remove": Scenario.remove,
    "purge": Scenario.purge,
    "wait": Scenario.wait,
    "fault": Scenario.fault,
    "heal": Scenario.heal,
    "index_state": Scenario.index_state,
    "run": Scenario.run,
    "call": Scenario.call,
    "expect": _expect,
    "send": _unknown("send"),
    "queue_state": _unknown("queue_state"),
    "versioning": _unknown("versioning"),
}
