"""Logits of classes as labels with scores, by the names in the config."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mapper.running.session import Session

_SEVERAL = "multi_label_classification"
_NUMBER = "regression"


def label_of(session: Session, at: int) -> str:
    """The config's name of a class; its number where it has none."""
    names = session.config.get("id2label")
    if isinstance(names, dict) and isinstance(name := names.get(str(at), names.get(at)), str):
        return name
    session.note("no id2label in config.json names the classes: they are told by their numbers")
    return f"LABEL_{at}"


def scores_of(session: Session, logits: Tensor) -> Tensor:
    """Chances of classes: of each by itself where several may hold, or where there is one. logits (C,) -> (C,)"""
    kind = session.config.get("problem_type")
    if kind == _NUMBER:
        return logits.float()
    return logits.float().sigmoid() if kind == _SEVERAL or len(logits) == 1 else logits.float().softmax(-1)


def labels_of(session: Session, logits: Tensor) -> dict[str, Any]:
    """The labels of logits (C,), the likeliest first, as many as are wished."""
    scores = scores_of(session, logits)
    values, order = scores.topk(min(session.wishes.top, len(scores)))
    pairs = zip(order.tolist(), values.tolist(), strict=True)
    rows = [{"label": label_of(session, at), "score": score} for at, score in pairs]
    return {"label": rows[0]["label"], "labels": rows}
