"""Where things are in each encoder family of transformers: one row a family."""

from __future__ import annotations

from dataclasses import dataclass

from bertvision.errors import BadInput


@dataclass(frozen=True)
class Family:
    """A model type that is known to work: where its layers live, and whether it may have a pooler."""

    model_type: str
    layers: str
    pooler: bool


FAMILIES = {
    row.model_type: row
    for row in (
        Family("bert", "encoder.layer", pooler=True),
        Family("roberta", "encoder.layer", pooler=True),
        Family("xlm-roberta", "encoder.layer", pooler=True),
        Family("camembert", "encoder.layer", pooler=True),
        Family("electra", "encoder.layer", pooler=False),
        Family("deberta", "encoder.layer", pooler=False),
        Family("deberta-v2", "encoder.layer", pooler=False),
        Family("mpnet", "encoder.layer", pooler=True),
        Family("distilbert", "transformer.layer", pooler=False),
        Family("modernbert", "layers", pooler=False),
        Family("albert", "encoder.albert_layer_groups.0.albert_layers", pooler=True),
    )
}


def family_of(model_type: str, name: str) -> Family:
    """The row for a model type; an unknown family is refused rather than guessed at."""
    if model_type not in FAMILIES:
        raise BadInput(f"encoder {name} is of type {model_type!r}; known types: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[model_type]
