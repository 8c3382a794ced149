"""The page with all that the rules hold is the one that they give."""

from __future__ import annotations

from pathlib import Path

from mapper.authoring.contents import contents
from mapper.cli import main
from mapper.rulebook.rulebook import Rulebook

PAGE = Path(__file__).resolve().parents[2] / "rules" / "CONTENTS.md"


def test_the_page_is_what_the_rules_give():
    assert PAGE.read_text(encoding="utf-8") == contents(Rulebook()), (
        "write it anew: mapper rules list --markdown > rules/CONTENTS.md"
    )


def test_it_names_each_slot_with_its_steps_and_what_they_need():
    text = PAGE.read_text(encoding="utf-8")
    assert "| `wide_norms` | `wide_query_key_norms` | `query_norm`, `key_norm`; attention.norms: " in text
    assert "| `attention.heads` | attention heads (of the query) | `num_attention_heads`" in text
    assert "| `attend(q, k, v, mask, scale, is_causal)` |" in text


def test_rules_of_ones_own_are_on_it(tmp_path, capsys):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "mixer.yaml").write_text(
        "block: mixer\ndoc: a mixer\nspine: [all]\nall:\n  once: {needs: [map], forward: return map(x)}\n"
    )
    assert main(["rules", "list", "--markdown", "--rules", str(tmp_path)]) == 0
    assert "| `all` | `once` | `map` |" in capsys.readouterr().out
