"""The page in a browser: open, search, click, follow a link, print, and all of it by keyboard."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mapper
from tests.checkpoints import write_manifest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
selenium = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser: the extra `test`")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no browser: apt-get install chromium chromium-driver"
)
LARGE, COMPARED = "Qwen/Qwen3-30B-A3B", ("prajjwal1/bert-tiny", "TinyLlama/TinyLlama-1.1B-Chat-v1.0")
PAUSE = 100  # milliseconds that an interaction may take
REPEATED = 5  # of which the quickest counts: other work on the machine is not the page's


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "model.html"
    path.write_text(mapper.inspect(LARGE).to_html(), encoding="utf-8")
    return path.as_uri()


def opened(browser: Any, page: str, link: str = "") -> None:
    browser.get("about:blank")
    browser.get(page + link)
    WebDriverWait(browser, 30).until(lambda _: is_ready(browser))


def is_ready(browser: Any) -> bool:
    return bool(browser.find_elements(By.CSS_SELECTOR, "body.ready"))


def panel(browser: Any) -> str:
    text: str = browser.find_element(By.ID, "panel").text
    return text


def chosen(browser: Any) -> str:
    label: str = browser.find_element(By.CSS_SELECTOR, ".node.chosen").get_attribute("aria-label")
    return label


def test_it_opens_with_the_model_and_fetches_nothing(browser: Any, page: str) -> None:
    browser.get_log("performance")
    opened(browser, page)
    assert browser.find_element(By.ID, "title").text == LARGE
    assert "18,867 tensors" in browser.find_element(By.ID, "subtitle").text
    labels = [node.get_attribute("aria-label") for node in browser.find_elements(By.CSS_SELECTOR, ".node")]
    assert any(label.startswith("layer, 48 times") for label in labels)
    assert any(label.startswith("expert, 128 times") for label in labels)
    assert browser.get_log("browser") == []  # no refusal of the policy, no error
    asked = [
        entry["message"]
        for entry in browser.get_log("performance")
        if "requestWillBeSent" in entry["message"]
    ]
    assert not [
        message for message in asked if "http://" in message.split('"initiator"')[0].split('"url":')[-1]
    ]


def test_a_link_leads_to_one_of_equal_modules_and_its_line_of_source(browser: Any, page: str) -> None:
    opened(browser, page, "#model.layers.7.mlp.experts.5.up_proj")
    assert chosen(browser).startswith("up, Linear 2,048 → 768")
    shown = panel(browser)
    assert "model.layers.7.mlp.experts.5.up_proj" in shown
    assert "model.layers.{0..47}.mlp.experts.{0..127}.up_proj.weight" in shown
    assert "vocabulary/feed_forward.yaml" in shown
    here = browser.find_element(By.CSS_SELECTOR, ".source .here")
    assert here.text.strip().startswith("self.up_proj = nn.Linear")


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("model.layers.40.self_attn.q_proj.weight", "query"),
        ("router", "router map"),
        ("151936x2048 embedding", "token"),
        ("rmsnorm final", "final norm"),
    ],
)
def test_search_finds_names_roles_shapes_and_kinds(browser: Any, page: str, query: str, title: str) -> None:
    opened(browser, page)
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "query"
    field.send_keys(query)
    assert browser.find_element(By.CSS_SELECTOR, '#results [aria-selected="true"]').text.startswith(title)
    field.send_keys(Keys.ENTER)
    assert chosen(browser).startswith(title)


def test_a_click_shows_a_block_with_its_facts_and_closes_it(browser: Any, page: str) -> None:
    opened(browser, page)
    attention = browser.find_element(By.CSS_SELECTOR, ".node.kind-attention")
    attention.find_element(By.CSS_SELECTOR, ".title").click()
    assert "attention.heads" in panel(browser)
    assert "shape: model.layers.{0..47}.self_attn.q_proj.weight [4096, 2048]" in panel(browser)
    assert browser.current_url.endswith("#model.layers.0.self_attn")
    attention.find_element(By.CSS_SELECTOR, ":scope > .turn").click()
    closed = browser.find_element(By.CSS_SELECTOR, ".node.kind-attention")
    assert closed.get_attribute("aria-expanded") == "false"


def test_every_block_is_reached_by_keyboard(browser: Any, page: str) -> None:
    opened(browser, page)
    browser.find_element(By.CSS_SELECTOR, '.node[tabindex="0"]').send_keys(Keys.ARROW_RIGHT)
    seen = []
    for _ in range(200):
        here = browser.switch_to.active_element
        label = here.get_attribute("data-id")
        if seen and label == seen[-1]:
            break
        seen.append(label)
        here.send_keys(Keys.ARROW_DOWN)
    drawn = {node.get_attribute("data-id") for node in browser.find_elements(By.CSS_SELECTOR, ".node")}
    assert set(seen) | {"0"} == drawn
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "panel"
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert "node" in browser.switch_to.active_element.get_attribute("class")
    before = browser.switch_to.active_element.get_attribute("data-id")
    browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert browser.switch_to.active_element.get_attribute("data-id") != before


def test_it_prints(browser: Any, page: str) -> None:
    opened(browser, page)
    printed = base64.b64decode(browser.print_page())
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 4  # three of the picture, one of what is known
    assert browser.find_elements(By.CSS_SELECTOR, ".strip") == []  # as it was


def test_a_printed_picture_is_cut_between_boxes_and_stays_legible(browser: Any, page: str) -> None:
    opened(browser, page)
    found = browser.execute_script(
        """const view = views[0], root = view.doc.nodes[0];
           window.dispatchEvent(new Event("beforeprint"));
           const strips = [...document.querySelectorAll(".strip")].map((strip) => strip.viewBox.baseVal);
           const widths = [...document.querySelectorAll(".strip")].map((strip) => Number(strip.getAttribute("width")));
           window.dispatchEvent(new Event("afterprint"));
           const boxes = [...view.holder.querySelectorAll(".closed > .frame, .operation > rect")].map((box) => box.getBoundingClientRect());
           const top = view.svg.getBoundingClientRect().top + 10 * view.svg.clientWidth / (view.width + 14);
           const factor = view.svg.clientWidth / (view.width + 14);
           return {
             cuts: strips.slice(1).map((strip) => strip.y), ends: strips.slice(0, -1).map((strip) => strip.y + strip.height),
             bottom: strips.at(-1).y + strips.at(-1).height - view.height, scales: strips.map((strip, at) => widths[at] / strip.width),
             boxes: boxes.map((box) => [(box.top - top) / factor, (box.bottom - top) / factor]) };"""
    )
    assert len(found["cuts"]) >= 2
    assert found["cuts"] == pytest.approx(found["ends"])  # nothing is left out between two strips
    assert found["bottom"] >= 0
    assert min(found["scales"]) > 0.6  # of 13 and 11 pixels
    split = [box for box in found["boxes"] for cut in found["cuts"] if box[0] < cut < box[1]]
    assert split == []


def test_nothing_pauses(browser: Any, page: str) -> None:
    opened(browser, page)
    took = browser.execute_script(
        """const quickest = (act) => Math.min(...Array.from({length: arguments[0]}, () => {
             const start = performance.now(); act(); document.body.getBoundingClientRect(); return performance.now() - start; }));
           const field = document.getElementById("query");
           const view = views[0], layer = view.doc.nodes.find((node) => node.kind === "layer");
           return {
             search: quickest(() => { field.value = "proj"; field.dispatchEvent(new Event("input")); }),
             choose: quickest(() => choose(view, layer)),
             fold: quickest(() => view.toggle(layer, !view.picture.isOpen(layer))),
           };""",
        REPEATED,
    )
    assert {name: time for name, time in took.items() if time > PAUSE} == {}


OBSERVED = """window.longest = 0;
new PerformanceObserver((list) => { for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration); })
  .observe({type: "longtask", buffered: true});"""


def longest(browser: Any, act: Callable[[], None]) -> float:
    """Milliseconds of the longest task that an act is broken into; the browser tells of those over 50."""
    browser.execute_script("window.longest = 0")
    act()
    time.sleep(0.1)  # it is told of afterwards
    took: float = browser.execute_script("return window.longest")
    return took


def test_opening_the_page_and_all_blocks_does_not_pause(browser: Any, page: str) -> None:
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": OBSERVED})
    opens, unfolds = [], []
    for _ in range(REPEATED):
        opens.append(longest(browser, lambda: opened(browser, page)))
        unfolds.append(longest(browser, lambda: browser.find_element(By.ID, "unfold").click()))
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert min(opens) <= PAUSE
    assert min(unfolds) <= PAUSE


def test_two_checkpoints_stand_side_by_side(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "diff.html"
    path.write_text(mapper.diff(*COMPARED).to_html(), encoding="utf-8")
    opened(browser, path.as_uri(), "#b:model.norm")
    assert [view.text for view in browser.find_elements(By.CSS_SELECTOR, ".view h2")] == list(COMPARED)
    assert "only here" in panel(browser)
    assert chosen(browser).startswith("final norm")
    assert browser.find_elements(By.CSS_SELECTOR, ".differs-only")


def test_what_is_asked_of_a_block_is_marked_and_there_to_copy(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "asked.html"
    place = write_manifest(tmp_path / "manifest.json")
    document = json.loads(place.read_text())
    document.pop("config", None)
    place.write_text(json.dumps(document))
    path.write_text(mapper.inspect(str(place)).to_html(), encoding="utf-8")
    opened(browser, path.as_uri())
    marked = browser.find_element(By.CSS_SELECTOR, ".node.marked.kind-attention")
    assert "asks for attention.heads" in marked.get_attribute("aria-label")
    marked.find_element(By.CSS_SELECTOR, ".title").click()
    assert "attention.heads is unknown" in panel(browser)
    button = browser.find_element(By.CSS_SELECTOR, '[aria-label="copy --set attention.heads=4"]')
    button.click()
    WebDriverWait(browser, 10).until(lambda _: button.text == "4 copied")  # the clipboard answers later


def test_hostile_names_run_nothing(browser: Any, tmp_path: Path) -> None:
    name = "</script><img src=x onerror=document.title='run'>\"'.weight"
    path = tmp_path / "hostile.html"
    report = mapper.inspect({name: (4, 4), f"other.{name}": (4, 4)})
    path.write_text(report.to_html(), encoding="utf-8")
    opened(browser, path.as_uri())
    browser.find_element(By.ID, "query").send_keys("img", Keys.ENTER)
    assert "onerror" in panel(browser)
    assert browser.title != "run"
    assert browser.get_log("browser") == []


def test_a_notebook_shows_it_in_a_frame(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    shown = mapper.inspect(COMPARED[0])._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8><h1>a notebook</h1>{shown}", encoding="utf-8")
    browser.get(path.as_uri())
    browser.switch_to.frame(0)
    WebDriverWait(browser, 30).until(lambda _: is_ready(browser))
    node = browser.find_element(By.CSS_SELECTOR, ".node.kind-layer")
    node.find_element(By.CSS_SELECTOR, ".title").click()
    assert chosen(browser).startswith("layer, 2 times")
    browser.switch_to.default_content()
    assert browser.get_log("browser") == []
