"""Make the pictures that the documentation shows, in docs/pictures/: models of the bundled catalogue and of the rules' examples.

    python tools/pictures.py                # all, and the page as a browser shows it where there is one
    python tools/pictures.py clip t5        # some of them

The SVGs need the extra `picture`, the page's own picture chromium with its driver. The same rules give the same SVGs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from mapper.architecture import Architecture
from mapper.catalogue import find
from mapper.inference import infer
from mapper.picture import as_html, as_svg
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
LIMIT = 150_000  # bytes of a file
PAGE, PAGE_OF, LINK = "page", "experts", "model.layers.0.mlp"  # what the picture of the page shows
WINDOW = (1360, 820)  # pixels
MODELS = {
    "distilbert": "distilbert/distilbert-base-uncased",
    "llama": "meta-llama/Llama-3.2-1B-Instruct",
    "clip": "openai/clip-vit-base-patch32",
    "t5": "google-t5/t5-small",
    "experts": "Qwen/Qwen3-30B-A3B",
}
EXAMPLES = {"swin": "swin"}  # name of the picture -> family, of which the first example


def main() -> int:
    names = [*MODELS, *EXAMPLES, PAGE]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; all when left out")
    asked = parser.parse_args().names or names
    if unknown := set(asked) - set(names):
        parser.error(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    rulebook = Rulebook()
    FOLDER.mkdir(exist_ok=True)
    for name in asked:
        if name != PAGE:
            written(FOLDER / f"{name}.svg", as_svg(read(name, rulebook)).encode())
        elif shutil.which("chromedriver"):
            written(FOLDER / f"{PAGE}.png", seen(as_html(read(PAGE_OF, rulebook))))
    return 0


def read(name: str, rulebook: Rulebook) -> Architecture:
    if name in EXAMPLES:
        family = next(family for family in rulebook.families if family.name == EXAMPLES[name])
        return infer(header(family.examples[0]), rulebook)
    checkpoint = find(MODELS[name])
    if checkpoint is None:
        raise SystemExit(f"{MODELS[name]} is not in the catalogue")
    return infer(checkpoint, rulebook)


def seen(page: str) -> bytes:
    """A page with one block selected as a browser shows it, as PNG."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    size = f"--window-size={WINDOW[0]},{WINDOW[1]}"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.html"
        path.write_text(page, encoding="utf-8")
        browser.get(f"{path.as_uri()}#{LINK}")
        WebDriverWait(browser, 30).until(lambda _: browser.find_elements("css selector", "body.ready"))
        picture: bytes = browser.get_screenshot_as_png()
        browser.quit()
    return picture


def written(path: Path, content: bytes) -> None:
    if len(content) > LIMIT:
        raise SystemExit(f"{path.name} has {len(content):,} bytes, and may have {LIMIT:,}")
    path.write_bytes(content)
    print(f"{path.relative_to(ROOT)}: {len(content):,} bytes")


if __name__ == "__main__":
    sys.exit(main())
