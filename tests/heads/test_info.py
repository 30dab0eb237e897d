"""head_shapes: from all states to the outputs, for every variant."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from bertvision.core.records import Shape
from bertvision.heads.base import build_head
from bertvision.heads.info import all_variants, fits, head_shapes

SMALL = Shape(layers=5, width=48, tokens=6, outputs=2, kind="span")
LARGE = Shape(layers=25, width=1024, tokens=386, outputs=2, kind="span")


@pytest.mark.parametrize("spec", all_variants())
def test_head_shapes_go_from_all_states_to_the_outputs(spec: str) -> None:
    shape = SMALL if fits(spec, SMALL) else replace(SMALL, kind="classify", outputs=3)
    shapes = head_shapes(spec, shape)
    assert shapes[0] == (6, 5, 48)
    assert shapes[-1] == ((6, 2) if shape.kind == "span" else (3,))
    assert len(shapes) > 2
    assert all(before != after for before, after in pairwise(shapes))


def test_head_shapes_of_the_papers_heads() -> None:
    assert head_shapes("compress:size=386", LARGE) == [(386, 25, 1024), (386, 25, 386), (386, 9650), (386, 2)]
    assert head_shapes("mean-pool", LARGE) == [(386, 25, 1024), (386, 25, 2), (386, 2)]
    labels = replace(LARGE, kind="classify")
    assert head_shapes("learned-pool:pooled=true", labels)[-3:] == [(26, 1024), (26, 2), (2,)]
    widths = [shape[1] for shape in head_shapes("xception:pooled=true", labels)[3:-2]]
    assert widths == [1024, 341, 339, 170]


@pytest.mark.parametrize("spec", ["compress:size=4,skip=true", "bilstm:size=4", "ngrams:size=2,compress=4"])
def test_head_shapes_end_with_the_output_shape_of_a_built_head(spec: str) -> None:
    head = build_head(spec, SMALL)
    output = head(torch.zeros(2, 6, 5, 48), torch.ones(2, 6, dtype=torch.bool))
    assert head_shapes(spec, SMALL)[-1] == tuple(output.shape[1:])


def test_head_shapes_allocate_no_memory() -> None:
    huge = Shape(layers=1001, width=100_000, tokens=5000, outputs=2, kind="span")
    assert head_shapes("compress:size=386,shared=false", huge)[1] == (5000, 1001, 386)
