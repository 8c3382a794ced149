"""A position behind a tensor of a module is a row of the tensor, not a name."""

import json
from pathlib import Path

import mapper
from tests.checkpoints import BERT, bert_shapes

PAGE = """\
block: embedding
flows:
  first_row:
    doc: word embeddings, each with the first row of the segments'
    needs: [token, position, token_type, norm]
    takes: []
    forward: |
      return norm(token(input_ids) + position.weight[1] + token_type.weight[0])
"""


def test_a_row_of_a_weight(tmp_path: Path) -> None:
    (tmp_path / "rules" / "flows").mkdir(parents=True)
    (tmp_path / "rules" / "flows" / "rows.yaml").write_text(PAGE)
    tensors = {name: {"shape": shape, "dtype": "F32"} for name, shape in bert_shapes().items()}
    manifest = tmp_path / "bert.json"
    manifest.write_text(json.dumps({"tensors": tensors, "config": BERT}))
    text = mapper.generate(
        manifest, hints={"embeddings:flow": "embedding/first_row"}, rules=[tmp_path / "rules"]
    )
    assert "self.position_embeddings.weight[1]" in text
    assert "self.token_type_embeddings.weight[0]" in text
