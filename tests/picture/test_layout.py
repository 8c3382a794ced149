"""Where the boxes and lines of a picture stand: no box on another, no line through a box."""

from __future__ import annotations

import json

import pytest

import mapper
from mapper.picture.document import document
from mapper.picture.page import asset
from mapper.picture.svg import _BROWSER

quickjs = pytest.importorskip("quickjs", reason="the picture's own drawing runs in it: the extra `picture`")

MODELS = (
    "distilbert/distilbert-base-uncased",
    "google-t5/t5-small",
    "openai/clip-vit-base-patch32",
    "google/gemma-3-12b-it",  # two towers of different height, read by several
    "facebook/sam-vit-base",  # prompts of many kinds
)
STANDING = """
function standing(doc) {
  const picture = new Picture(doc), found = { boxes: 0, lines: 0, over: [], through: [] };
  const point = ([x1, y1], [x2, y2], isStraight, u) => {
    const half = (y1 + y2) / 2, v = 1 - u;
    return isStraight ? [x1 + (x2 - x1) * u, y1 + (y2 - y1) * u]
      : [v ** 3 * x1 + 3 * v * v * u * x1 + 3 * v * u * u * x2 + u ** 3 * x2, v ** 3 * y1 + 3 * v * v * u * half + 3 * v * u * u * half + u ** 3 * y2];
  };
  const level = (node, box) => {
    if (!box.at) return;
    const boxes = box.at.map(([id, x, y, inner]) => ({ title: doc.nodes[id].title, x, y, right: x + inner.width, bottom: y + inner.height }));
    const meet = (a, b) => a.x < b.right - 1 && b.x < a.right - 1 && a.y < b.bottom - 1 && b.y < a.bottom - 1;
    boxes.forEach((a, at) => boxes.slice(at + 1).forEach((b) => { if (meet(a, b)) found.over.push(`${node.title}: ${a.title}, ${b.title}`); }));
    for (const a of boxes) if (a.x < -1 || a.y < -1 || a.right > box.width + 1 || a.bottom > box.height + 1) found.over.push(`${node.title}: ${a.title}, its edge`);
    for (const [points] of box.lines) {
      points.slice(1).forEach((end, at) => {
        const next = points[at + 2], start = points[at];
        const isStraight = start[1] === end[1] || Boolean(next && next[1] === end[1]); // as drawLine has it
        for (let u = 0.05; u < 1; u += 0.05) {
          const [x, y] = point(start, end, isStraight, u);
          const crossed = boxes.find((a) => x > a.x + 3 && x < a.right - 3 && y > a.y + 3 && y < a.bottom - 3);
          if (crossed) found.through.push(`${node.title}: ${crossed.title}`);
        }
      });
    }
    found.boxes += boxes.length;
    found.lines += box.lines.length;
    for (const [id, , , inner] of box.at) level(doc.nodes[id], inner);
  };
  level(doc.nodes[0], picture.box(doc.nodes[0]));
  return JSON.stringify(found);
}
"""


@pytest.mark.parametrize("name", MODELS)
def test_boxes_and_lines_keep_clear_of_each_other(name: str) -> None:
    engine = quickjs.Context()
    for text in (_BROWSER, asset("dagre.min.js") + ";globalThis.dagre = dagre;", asset("draw.js"), STANDING):
        engine.eval(text)
    engine.set("data", json.dumps(document(mapper.inspect(name).architecture)))
    found = json.loads(engine.eval("standing(JSON.parse(data))"))
    assert found["boxes"] > 30 and found["lines"] > 30
    assert found["over"] == []
    assert sorted(set(found["through"])) == []
