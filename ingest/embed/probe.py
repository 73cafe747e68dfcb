"""Does this CPU gain by bfloat16? Its flags don't tell: some have the instructions and take twice as long."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

LEAST_GAIN = 1.2  # measured: 1.7 where it gains, 0.55 where it does not; so that noise decides nothing
ROWS, WIDTH, INNER = 512, 384, 1536  # a feed-forward layer of a small encoder over two texts
ROUNDS = 3  # the fastest counts: 0.3 s in all


@cache
def has_fast_bf16() -> bool:
    """Whether a feed-forward layer in bfloat16 takes clearly less time than in float32."""
    return bf16_gain() >= LEAST_GAIN


def bf16_gain() -> float:
    """CPU time in float32 by CPU time in bfloat16, measured now."""
    from openvino import Type

    requests = {dtype: _request(dtype) for dtype in (Type.f32, Type.bf16)}
    rows = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)
    times: dict[Any, list[float]] = {dtype: [] for dtype in requests}
    for _ in range(ROUNDS):
        for dtype, request in requests.items():
            began = time.process_time()  # not the clock: other processes start meanwhile
            request.infer({0: rows}, share_inputs=True)
            times[dtype].append(time.process_time() - began)
    return min(times[Type.f32]) / min(times[Type.bf16])


def _request(dtype: Any) -> Any:
    import openvino
    from openvino import opset13 as ops
    from openvino.properties import hint, inference_num_threads, streams

    weights = np.random.default_rng(1).standard_normal((INNER, WIDTH), np.float32)
    rows = ops.parameter([ROWS, WIDTH], np.float32)
    wide = ops.gelu(ops.matmul(rows, ops.constant(weights), False, True), "erf")
    network = openvino.Model([ops.matmul(wide, ops.constant(weights), False, False)], [rows])
    options = {hint.inference_precision: dtype, inference_num_threads: 1, streams.num: 1}
    return openvino.Core().compile_model(network, "CPU", options).create_infer_request()
