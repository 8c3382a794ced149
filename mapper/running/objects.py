"""What models that find things in a picture answer: boxes with labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mapper.errors import SourceError
from mapper.running.images import pixels_of
from mapper.running.labels import label_of
from mapper.running.pictures import opened
from mapper.running.session import Session

Answer = dict[str, Any]
LIKELY = 0.5  # the lowest score of what is told: that of the reference's pipeline
_MOST = 100  # boxes


def detect(session: Session, given: Any) -> Answer:
    """What is in a picture, each with its score and its `box` [left, top, right, bottom] in pixels of the picture, the likeliest first."""
    image = opened(given)
    out = session.call(pixel_values=pixels_of(session, image))
    kinds, scores, at = likeliest(out.logits[0].float().cpu(), _labels(session))
    boxes = corners(out.pred_boxes[0].float().cpu()) * torch.tensor([image.width, image.height] * 2)
    rows: list[Answer] = [
        {"label": label_of(session, int(kind)), "score": float(score), "box": boxes[place].tolist()}
        for kind, score, place in zip(kinds, scores, at, strict=True)
    ]
    found = [row for row in rows if row["score"] > LIKELY]
    if not found and rows:
        session.note(
            f"nothing has a score above {LIKELY}; the highest is {rows[0]['score']:.3f}, {rows[0]['label']}"
        )
    return {"objects": found, "size": [image.width, image.height]}


def _labels(session: Session) -> int:
    """How many kinds the model knows. Raises SourceError where nothing says it."""
    names, count = session.config.get("id2label"), session.config.get("num_labels")
    if isinstance(names, dict) and names:
        return len(names)
    if type(count) is int:
        return count
    raise SourceError(
        f"{session.source}: config.json has no id2label, so nothing says whether the last column of the scores is for nothing; put it there"
    )


def likeliest(logits: Tensor, labels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Kind, score and place among the queries of what is found, the likeliest first. logits (Q, C) -> three of (N,)

    With a column more than there are labels, the last is for nothing and a query has one kind (DETR, paper 2005.12872);
    else every pair of a query and a kind is scored by itself (paper 2010.04159). Raises SourceError for other numbers.
    """
    if logits.shape[1] == labels + 1:
        best, kinds = logits.softmax(-1)[:, :-1].max(-1)
        scores, at = best.sort(descending=True)
        return kinds[at], scores, at
    if logits.shape[1] != labels:
        raise SourceError(f"the scores are of {logits.shape[1]} kinds, and id2label names {labels}")
    scores, pairs = logits.sigmoid().flatten().topk(min(_MOST, logits.numel()))
    return pairs % labels, scores, pairs // labels


def corners(boxes: Tensor) -> Tensor:
    """Boxes of centre and size as left, top, right and bottom. boxes (Q, 4) -> (Q, 4)"""
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)
