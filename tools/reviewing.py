"""What a reviewer would count in the sources of the checkpoints of a folder.

    python tools/reviewing.py CHECKPOINTS                 # the counts, with the sources that have most of each
    python tools/reviewing.py CHECKPOINTS --keep FOLDER   # and the sources, to be read
    python tools/reviewing.py --sources FOLDER            # of sources that are there, such as generated/

A count is no judgement: a class of few lines more than once may be what the checkpoint is. It tells where to look, and
whether a change of the emission made more files better than worse.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LINE, FUNCTION, SIZE = 110, 40, 16  # columns, lines, and the least number that is taken for a size
LETTERS = frozenset("xyzqkvabcdefghijnmstuwp") | {
    "F",
    "_",
}  # that stand for a tensor or an index in any short function
_NUMERAL = re.compile(r"[a-z]\d+$")


def measures(text: str) -> Counter[str]:
    """What there is of each in one source."""
    tree = ast.parse(text)
    code = text.partition("\n# What this was read from")[0].splitlines()
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    modules = [node for node in classes if not node.decorator_list]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = Counter(lines=len(code), modules=len(modules))
    found["class with a numeral"] = sum(bool(_NUMERAL.search(node.name)) for node in modules)
    found[f"function over {FUNCTION} lines"] = sum(_rows(node) > FUNCTION for node in functions)
    found[f"line over {LINE} columns"] = sum(len(line) > LINE for line in code)
    found["size in code"] = sum(len(list(_sizes(node))) for node in modules)
    found["class like another"] = len(modules) - len({_shape(node) for node in modules})
    found["forward like another"] = _repeated(_forward(node) for node in modules)
    found["chain of its own children"] = sum(map(_is_chain, modules))
    found["attribute unused in silence"] = sum(len(_unused(node, code)) for node in modules)
    found["single letter"] = sum(len(_letters(node)) for node in functions)
    found["method without a word"] = sum(not _told(node) for node in modules)
    found["argument over eight"] = sum(len(node.args.args) > 9 for node in functions)
    found["file over 400 lines"] = len(code) > 400
    return found


def _rows(node: ast.FunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _sizes(node: ast.AST) -> Iterator[int]:
    """The whole numbers that are sizes, but for those that torch's own arithmetic has (a dtype's bits, an epsilon)."""
    for item in ast.walk(node):
        if isinstance(item, ast.Constant) and type(item.value) is int and abs(item.value) >= SIZE:
            yield item.value


def _shape(node: ast.ClassDef) -> str:
    """A class without its name and its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return ast.dump(ast.Module(body, []))


def _forward(node: ast.ClassDef) -> str:
    found = next((i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "forward"), None)
    return ast.unparse(found) if found is not None else ""


def _repeated(texts: Iterable[str]) -> int:
    known = [text for text in texts if text]
    return len(known) - len(set(known))


def _is_chain(node: ast.ClassDef) -> bool:
    """Whether a class is a list whose forward calls one child after another: `nn.Sequential` has it."""
    if not any(ast.unparse(base) == "nn.ModuleList" for base in node.bases):
        return False
    body = "\n".join(_forward(node).splitlines()[1:])
    return body.split() == ["for", "layer", "in", "self:", "x", "=", "layer(x)", "return", "x"] or bool(
        re.fullmatch(r"\s*return (self\[\d+\]\()+x\)+", body)
    )


def _unused(node: ast.ClassDef, code: list[str]) -> set[str]:
    """Modules and parameters of a class that its source does not name again, and of which no comment says why."""
    text = "\n".join(code)
    found = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            above = code[item.lineno - 2].strip() + code[item.lineno - 1]
            if "# unused" not in above and len(re.findall(rf"\.{item.attr}\b", text)) < 2:
                found.add(item.attr)
    return found


def _letters(node: ast.FunctionDef) -> set[str]:
    named = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return {name for name in named if len(name) == 1} - LETTERS - {"B", "T", "H", "W", "C", "D", "K", "S"}


def _told(node: ast.ClassDef) -> bool:
    return bool(ast.get_docstring(node))


def written(folder: Path, kept: Path | None) -> Iterator[tuple[str, str]]:
    """The source of each checkpoint of a folder from which one is written."""
    from score import cases

    from mapper._api import describe
    from mapper.emission import emit
    from mapper.errors import MapperError

    for path, _ in cases(folder):
        try:
            architecture = describe(path, purpose="weights")
            text = "" if architecture.reading == "skeleton" else emit(architecture)
        except MapperError:
            continue
        if text and kept is not None:
            (kept / f"{path.name}.py").write_text(text, encoding="utf-8")
        if text:
            yield path.name, text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--keep", type=Path, help="write the sources there")
    parser.add_argument("--sources", type=Path, help="sources that are there")
    arguments = parser.parse_args()
    if arguments.sources is not None:
        texts = ((path.stem, path.read_text("utf-8")) for path in sorted(arguments.sources.glob("*.py")))
    elif arguments.folder is not None:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
        texts = written(arguments.folder, arguments.keep)
    else:
        parser.error("a folder of checkpoints, or --sources")
    counted = {name: measures(text) for name, text in texts}
    print(f"{len(counted)} sources")
    for measure in next(iter(counted.values()), {}):
        most = sorted(counted, key=lambda name: -counted[name][measure])[:4]
        shown = ", ".join(f"{name} {int(counted[name][measure])}" for name in most if counted[name][measure])
        having = sum(item[measure] > 0 for item in counted.values())
        print(f"{measure}: {sum(item[measure] for item in counted.values())} in {having} ({shown})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
