"""Turns an encoder's weights into OpenVINO's format, once; the only part of that backend that needs torch.

``python -m ingest.embed.convert MODEL_FOLDER TARGET_FOLDER`` runs in a child process, so that the process that embeds
never imports torch (10 s and 0.5 GB).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest.embed.model_files import read_model, weights_hash
from ingest.errors import PreflightError

FORMAT = "1"  # goes up when this file converts differently
TIMEOUT_S = 900.0


def converted(folder: Path, cache_dir: Path) -> Path:
    """The converted model's XML file; two processes may convert at once, the first to finish wins."""
    target = cache_dir / f"{weights_hash(folder)}-openvino-{FORMAT}"
    if not (target / "model.xml").is_file():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=f".{target.name}-") as scratch:
            _in_child(folder, Path(scratch) / "model")
            _publish(Path(scratch) / "model", target)
    return target / "model.xml"


def _publish(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not (target / "model.xml").is_file():
            raise
        shutil.rmtree(made)  # another process was faster; both made the same


def _in_child(folder: Path, target: Path) -> None:
    command = [sys.executable, "-m", "ingest.embed.convert", str(folder), str(target)]
    # A worker may have found this package by a sys.path of its own.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PreflightError(f"{folder.name}: converting for OpenVINO took over {TIMEOUT_S:g} s") from error
    if done.returncode != 0 or not (target / "model.xml").is_file():
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise PreflightError(f"{folder.name} can't be converted for OpenVINO; set embed.backend: torch\n{last}")


def convert(folder: Path, target: Path) -> None:
    """Writes ``target/model.xml`` and ``model.bin``: token ids in, last hidden state out, weights in fp32."""
    import openvino
    import torch
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    names = ["input_ids", "attention_mask"]
    if getattr(model.config, "type_vocab_size", 0) > 1:
        names.append("token_type_ids")

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True))).last_hidden_state

    length = min(16, read_model(folder).max_tokens)
    example = tuple(torch.ones(2, length, dtype=torch.int64) for _ in names)
    with torch.no_grad():
        network = openvino.convert_model(Encoder(), example_input=example)
    for port, name in zip(network.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    target.mkdir(parents=True)
    openvino.save_model(network, target / "model.xml", compress_to_fp16=False)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
