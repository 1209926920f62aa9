# SPDX-License-Identifier: Apache-2.0
"""For each OpInfo error sample tpu raises the exception type that cpu raises: 97 % at least, and the rest is listed."""

import warnings

import pytest
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torch
import tputorch  # noqa: F401

KNOWN = {
    "nn_functional_max_pool2d": "an empty window of a kernel wider than the input",
    "nn_functional_max_pool3d": "the same, and a batch of none with a dim of none",
    "narrow_copy": "IndexError, as narrow itself raises, where the CPU's narrow_copy trips an internal assertion",
    "roll": "a tensor without dims rolled along dim 0",
    "gather": "an out= that is the index itself",
}


def outcome(op, sample):
    """The exception, or None; results are read, so that what is flagged on the device comes out."""
    try:
        r = op.get_op()(sample.input, *sample.args, **sample.kwargs)
        for t in pytree.tree_leaves(r):
            if isinstance(t, torch.Tensor) and t.device.type == "tpu":
                t.cpu()
    except Exception as e:
        return e
    return None


def pairs(op):
    """(exception type that is right, sample on tpu).  Where the lists of the two devices differ in length, an entry tells
    its type itself."""
    on_cpu = list(op.error_inputs("cpu"))
    try:
        on_tpu = list(op.error_inputs("tpu"))
    except NotImplementedError:                         # a sample of more than 16 dims
        return []
    if len(on_cpu) != len(on_tpu):
        return [(e.error_type, e.sample_input) for e in on_tpu]
    found = [(outcome(op, a.sample_input), b.sample_input) for a, b in zip(on_cpu, on_tpu, strict=True)]
    return [(type(e), sample) for e, sample in found if e is not None]


def compare(op):
    """(number of samples, words about those that differ)"""
    bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = pairs(op)
        for want, sample in samples:
            got = outcome(op, sample)
            if not isinstance(got, want):
                bad.append(f"{op.formatted_name}: {want.__name__} is {type(got).__name__}({str(got)[:150]}) for {str(sample)[:120]}")
    return len(samples), bad


@pytest.mark.slow
def test_error_samples():
    total, bad = 0, []
    for op in op_db:
        if op.error_inputs_func is None:
            continue
        n, words = compare(op)
        total += n
        bad += words
    new = [w for w in bad if w.split(":")[0] not in KNOWN]
    assert total > 600
    assert not new, "\n".join(new)
    assert len(bad) <= 0.03 * total, "\n".join(bad)
