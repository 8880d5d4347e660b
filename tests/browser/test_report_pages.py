"""The report in a real browser: opened from disk, drawn without a network, readable on a phone and in the dark."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetplan.report.publish import publish

pytestmark = pytest.mark.browser

HOSTILE = """</script><script>window.broken = 1</script><img src=x onerror="window.broken = 1">&"'</style>{{ 7*7 }}"""


def _example() -> Any:
    found = importlib.util.spec_from_file_location(
        "example_store", Path(__file__).with_name("example_store.py")
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of reports: two versions of a scenario, an infeasible one, one with hostile texts, and the index."""
    example = _example()
    folder = tmp_path_factory.mktemp("reports with 'a quote' and a space")
    store = folder / "fleet.duckdb"
    hostile = example.feasible("hostile", label=HOSTILE, title=HOSTILE)
    example.make(store, example.feasible(), example.infeasible(), hostile)
    publish(store, folder)
    example.make(store, example.feasible(rate=14, replicas=8), example.infeasible(), hostile)
    manifests = {content["scenario"]: folder / content["path"] for content in publish(store, folder)}
    return {**manifests, "index": folder / "index.html"}


@contextmanager
def opened(
    browser: Any, path: Path, *, width: int = 1440, scheme: str = "light"
) -> Iterator[tuple[Any, list[str]]]:
    """A page opened from disk with its charts drawn, and a list of what went wrong: errors and requests to a host."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    faults: list[str] = []
    page.on(
        "console",
        lambda message: faults.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:")) else faults.append(request.url),
    )
    page.goto(path.as_uri())
    if page.locator("figure[data-chart]").count():
        page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=30_000)
    yield page, faults
    page.close()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *(("support-chat", width, scheme) for width in (1440, 390) for scheme in ("light", "dark")),
        *((name, *view) for name in ("impossible", "index") for view in ((1440, "light"), (390, "dark"))),
        ("hostile", 390, "light"),
    ],
)
def test_a_page_opens_from_disk(
    chromium: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    """No request to any host, no error, every chart drawn inside the page, no sideways scroll."""
    with opened(chromium, pages[name], width=width, scheme=scheme) as (page, faults):
        assert faults == []
        charts = page.locator("figure[data-chart]").count()
        assert charts == page.locator("figure[data-state=drawn] svg").count()
        assert charts >= (4 if name in ("support-chat", "hostile") else 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("window.broken === undefined")
        wide = page.evaluate(
            "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().right > innerWidth + 1).length"
        )
        assert wide == 0


def test_the_first_screen_answers(chromium: Any, pages: dict[str, Path]) -> None:
    """On the first screen of a desktop: the count, how it comes about, the costs, each promise, what binds and N − 1."""
    with opened(chromium, pages["support-chat"]) as (page, _):
        for text in (
            "H100 SXM GPUs",
            "= (8 serving + 1 spare) replicas × 2 GPUs (TP 2, fp8)",
            "$53.82",
            "TTFT p99 of class chat",
            "One replica fewer",
            "How sure",
        ):
            box = page.get_by_text(text).first.bounding_box()
            assert box is not None, text
            assert box["y"] + box["height"] <= 900, text
        assert page.locator(".number strong").inner_text() == "18"
        assert page.locator("table.promises tbody tr").count() == 3


def test_dark_and_print_recolour_the_charts(chromium: Any, pages: dict[str, Path]) -> None:
    """The charts' colours are the page's variables: another scheme needs no redraw, paper is light."""
    colours = {}
    script = "getComputedStyle(document.querySelector('figure svg text')).fill + getComputedStyle(document.body).backgroundColor"
    with opened(chromium, pages["support-chat"], scheme="light") as (page, _):
        colours["light"] = page.evaluate(script)
        page.emulate_media(color_scheme="dark")
        colours["dark"] = page.evaluate(script)
        page.emulate_media(media="print")
        colours["print"] = page.evaluate(script)
    assert len(set(colours.values())) == 3
    assert "rgb(255, 255, 255)" in colours["print"]


def test_print_unfolds_the_tables(chromium: Any, pages: dict[str, Path]) -> None:
    """What is folded on the screen is on the paper, and folded again afterwards."""
    with opened(chromium, pages["support-chat"]) as (page, _):
        folded = "document.querySelectorAll('details:not([open])').length"
        before = page.evaluate(folded)
        assert before > 0
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(folded) == 0
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(folded) == before


def test_the_keyboard_reaches_everything(chromium: Any, pages: dict[str, Path]) -> None:
    """Tab finds the skip link first; each chart has words, each scrolling table a name and a place in the tab order."""
    with opened(chromium, pages["support-chat"]) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.locator(".chart[role=img][aria-label]").count() == page.locator(".chart").count()
        assert page.locator(".scroll[tabindex='0'][aria-label]").count() == page.locator(".scroll").count()


def test_without_scripts_the_figures_are_still_there(chromium: Any, pages: dict[str, Path]) -> None:
    """A reader that runs no script sees the answer, the tables, and a sentence about the charts."""
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["support-chat"].as_uri())
    assert page.locator(".number strong").inner_text() == "18"
    assert page.get_by_text("Charts need JavaScript").is_visible()
    context.close()


def test_links_lead_somewhere(chromium: Any, pages: dict[str, Path]) -> None:
    """The index leads to each page, and each page back; every anchor has its place."""
    with opened(chromium, pages["index"]) as (page, _):
        paths = [link.get_attribute("href") for link in page.locator("main a").all()]
        assert paths
        assert all((pages["index"].parent / path).is_file() for path in paths)
    with opened(chromium, pages["support-chat"]) as (page, _):
        broken = page.evaluate(
            "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.querySelector(a.hash)).length"
        )
        assert broken == 0


def test_a_page_is_small_enough_to_send(pages: dict[str, Path]) -> None:
    """Under 1.5 MB, with one chart bundle whatever the number of charts."""
    for path in pages.values():
        assert path.stat().st_size < 1_500_000, path
