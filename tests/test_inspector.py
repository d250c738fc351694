"""The inspector in a real headless Chromium: by mouse, by keyboard, on a phone's width, light and dark.

apt-get install chromium && pip install playwright && pytest -m slow tests/test_inspector.py
ROAM_SCREENSHOTS=scripts/deploy/screenshots pytest -m slow tests/test_inspector.py     # takes the pictures anew
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roam.relations import Relation
from roam.server import Settings
from roam.server.keys import add_key
from tests.server_app import BEAGLE, DOG, GHENT, LYON, MAYBE, client_of, listening, make_app
from tests.stubs import ScriptedRelations

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE = {"width": 360, "height": 740}
TEA = "Likes green tea <b>very</b> much."
FACTS = (
    (LYON, "2026-01-05"), (DOG, "2026-01-07"), (BEAGLE, "2026-02-11"), (MAYBE, "2026-02-20"), (GHENT, "2026-03-01"),
    (TEA, None),
)  # fmt: skip


def test_the_page_and_its_parts_are_served_and_load_nothing_from_elsewhere(tmp_path: Path, root: Path) -> None:
    with client_of(make_app(tmp_path)) as client:
        page = client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        for name in ("app.js", "api.js", "dom.js", "memories.js", "panels.js", "style.css", "icon.svg"):
            reply = client.get(f"/static/{name}")
            assert reply.status_code == 200
            assert "://" not in reply.text.replace("http://www.w3.org/2000/svg", "")
            assert "innerHTML" not in reply.text
        assert "://" not in page.text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def fill(address: str, key: str | None = None) -> None:
    facts = [
        {"text": text, "user": "maya", "observed_at": told, "id": f"f{number}", "source": "chat-1"}
        for number, (text, told) in enumerate(FACTS)
    ]
    send(address, facts, key)


def send(address: str, facts: list[dict[str, Any]], key: str | None = None) -> None:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    body = json.dumps({"observations": facts}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{address}/v1/memories/batch", body, headers), timeout=60).close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    settings = Settings(db=str(tmp_path / "m.db"), rate=10_000, burst=10_000)
    with listening(make_app(tmp_path, rate=10_000, burst=10_000), settings) as (address, _):
        fill(address)
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    yield from opened(browser, address)


def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page whose console errors and failed requests fail the test."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/#user=maya")
    page.get_by_text("current memor").wait_for()
    yield page
    context.close()
    assert errors == []


def shot(page: Any, name: str) -> None:
    folder = os.environ.get("ROAM_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=False)


def texts(page: Any) -> list[str]:
    return [str(text) for text in page.locator("article .view").all_inner_texts()]


def no_sideways_scrolling(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def unlabelled(page: Any) -> Any:
    """Controls without a name for a screen reader."""
    return page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, meter')]
        .filter((e) => e.offsetParent && !e.innerText && !e.ariaLabel && !(e.labels && e.labels.length))
        .map((e) => e.outerHTML)"""
    )


@pytest.mark.slow
def test_primaries_show_their_evidence_chain_and_probabilities(page: Any) -> None:
    assert texts(page)[-1] == TEA  # as text, not as HTML
    card = page.locator("article", has_text=GHENT).first
    card.locator("summary").click()
    chain = card.locator(".chain > li")
    chain.first.wait_for()
    assert LYON in chain.first.inner_text()
    assert "2026-01-05" in chain.first.inner_text()
    assert "Evidence" in chain.first.inner_text()
    last = chain.last
    assert "Primary" in last.inner_text()
    assert last.locator(".tag").first.inner_text() == "CON"
    con = last.locator("div", has_text=LYON).locator("meter").nth(4)
    assert float(con.get_attribute("value") or 0) == pytest.approx(0.96, abs=1e-3)
    assert unlabelled(page) == []
    shot(page, "memories")


@pytest.mark.slow
def test_what_if_compares_two_typed_facts_and_stores_nothing(page: Any) -> None:
    page.get_by_role("tab", name="What if").click()
    page.get_by_label("Old fact").fill(DOG)
    page.get_by_label("New fact").fill(BEAGLE)
    page.get_by_role("button", name="Compare").click()
    page.locator("article .tag").wait_for()
    assert page.locator("article .tag").inner_text() == "OSN"
    page.get_by_role("button", name="Swap").click()
    page.get_by_role("button", name="Compare").click()
    page.locator("article .tag", has_text="NSO").wait_for()
    shot(page, "what-if")
    page.get_by_role("tab", name="Memories").click()
    page.get_by_text("current memor").wait_for()
    assert sum(DOG in text or BEAGLE in text for text in texts(page)) == 1


@pytest.mark.slow
def test_review_accepts_corrects_and_undoes(page: Any) -> None:
    page.get_by_role("tab", name="Review").click()
    page.get_by_role("button", name="Accept CON").first.wait_for()
    shot(page, "review")
    assert page.get_by_role("button", name="Accept CON").count() == 1
    page.get_by_role("button", name="Accept CON").click()
    page.get_by_text("Nothing to review").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Accept CON").wait_for()
    page.get_by_label("relation of the new fact").select_option("EQV")
    page.get_by_role("button", name="Correct").click()
    page.get_by_text("Nothing to review").wait_for()


@pytest.mark.slow
def test_retract_and_erase_ask_first(page: Any) -> None:
    before = texts(page)
    card = page.locator("article", has_text=BEAGLE)
    card.locator("summary").click()
    card.locator(".chain > li.primary").get_by_role("button", name="Retract").click()
    page.get_by_role("button", name="Cancel").click()
    assert texts(page) == before
    card.locator(".chain > li.primary").get_by_role("button", name="Retract").click()
    shot(page, "confirm")
    page.locator("#confirm-yes").click()
    page.get_by_text("Retracted.").wait_for()
    assert [text for text in texts(page) if "dog" in text] == [DOG]  # what it had refined is back
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("was undone").wait_for()
    assert texts(page) == before
    card = page.locator("article", has_text=TEA)
    card.locator("summary").click()
    card.get_by_role("button", name="Erase").click()
    page.keyboard.press("Escape")
    assert TEA in texts(page)
    card.get_by_role("button", name="Erase").click()
    page.locator("#confirm-yes").click()
    page.get_by_text("Erased.").wait_for()
    assert TEA not in texts(page)


@pytest.mark.slow
def test_a_user_is_erased_only_by_typing_the_name(page: Any) -> None:
    page.get_by_role("button", name="Erase user").click()
    assert page.locator("#confirm-yes").is_disabled()
    page.get_by_label("Type maya to confirm").fill("may")
    assert page.locator("#confirm-yes").is_disabled()
    page.get_by_label("Type maya to confirm").fill("maya")
    page.locator("#confirm-yes").click()
    page.get_by_text("6 facts erased").wait_for()
    page.get_by_text("Nothing is stored of maya").wait_for()


@pytest.mark.slow
def test_search_and_history(page: Any) -> None:
    page.get_by_role("tab", name="Search").click()
    page.get_by_label("Question").fill("Where does the user live?")
    page.get_by_label("Budget").fill("20")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("of 20 tokens").wait_for()
    assert any("Ghent" in text for text in texts(page))
    shot(page, "search")
    page.get_by_role("tab", name="History").click()
    page.locator(".chain > li").first.wait_for()
    assert page.locator(".chain > li").count() == len(FACTS)


@pytest.mark.slow
def test_everything_works_by_keyboard(page: Any) -> None:
    page.locator("#tab-memories").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-search"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-history"
    page.keyboard.press("Home")
    page.locator("article").first.wait_for()
    page.keyboard.press("Tab")  # the panel comes after the one tab that is in the order
    page.locator("article summary").first.focus()
    page.keyboard.press("Enter")
    page.locator(".chain > li").first.wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Retract…":
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "confirm-no"  # the harmless answer has the focus
    page.keyboard.press("Escape")
    assert not page.locator("#confirm").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Retract…"  # and the focus comes back
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_light_and_dark(browser: Any, address: str, scheme: str) -> None:
    for page in opened(browser, address, viewport=PHONE, color_scheme=scheme, device_scale_factor=2):
        page.locator("summary").first.click()
        page.locator(".chain > li").first.wait_for()
        assert no_sideways_scrolling(page)
        shot(page, f"phone-{scheme}")
        small = page.evaluate(
            "[...document.querySelectorAll('button')].filter((b) => b.offsetParent && b.offsetHeight < 24).length"
        )
        assert small == 0
        for part in ("search", "compare", "review", "history"):
            page.locator(f"#tab-{part}").click()
            page.wait_for_function("document.querySelector('main').childElementCount > 0")
            assert no_sideways_scrolling(page), part
        assert contrast(page) >= 4.5


def contrast(page: Any) -> float:
    """The least contrast of the page's text colours to their ground (WCAG asks for 4.5)."""
    names = ["--page", "--card", "--ink", "--soft", "--accent", "--accent-ink", "--danger"]
    names += [f"--{relation}" for relation in ("IND", "EQV", "OSN", "NSO", "CON")]
    read = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    colour = dict(zip(names, page.evaluate(read, names), strict=True))

    def luminance(name: str) -> float:
        parts = [int(colour[name][place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def ratio(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    inks = [name for name in names if name not in ("--page", "--card", "--accent-ink")]
    return min(ratio("--accent-ink", "--accent"), *(ratio(ink, on) for ink in inks for on in ("--page", "--card")))


@pytest.mark.slow
def test_a_server_with_keys_asks_for_one(browser: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    secret = add_key(keys, "app", tenant=None, users=["maya"])
    settings = Settings(db=str(tmp_path / "m.db"), keys=keys)
    with listening(make_app(tmp_path, keys=keys), settings) as (address, _):
        fill(address, secret)
        page = browser.new_page()
        page.set_default_timeout(10_000)
        page.goto(f"{address}/#user=maya")
        page.get_by_label("Key", exact=True).fill("roam_wrong")
        page.get_by_role("button", name="Use this key").click()
        page.get_by_label("Key", exact=True).fill(secret)
        page.get_by_role("button", name="Use this key").click()
        page.get_by_text("current memor").wait_for()
        page.close()


@pytest.mark.slow
def test_many_memories_and_long_chains_come_in_parts_and_wait_for_their_turn(browser: Any, tmp_path: Path) -> None:
    def same(old: str, new: str) -> Relation:
        return Relation.EQV if old.startswith("Same") and new.startswith("Same") else Relation.IND

    options = {"rate": 50.0, "burst": 60}  # fewer at once than a part of a chain asks for, after what came before
    app = make_app(tmp_path, ScriptedRelations(rule=same), **options)
    with listening(app, Settings(db=str(tmp_path / "m.db"), **options)) as (address, _):
        facts = [f"Same thing said in way {number}." for number in range(60)] + [f"Fact {n} of it." for n in range(110)]
        send(address, [{"text": text, "user": "maya"} for text in facts])
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(f"{address}/#user=maya")
        page.get_by_text("the first 100 current memories").wait_for()
        more = page.get_by_role("button", name="Show more")
        more.focus()
        page.keyboard.press("Enter")
        page.get_by_text("111 current memories").wait_for()
        assert page.locator("article").count() == 111
        assert not more.is_visible()
        card = page.locator("article", has_text="60 facts").first
        card.locator("summary").click()
        card.get_by_role("button", name="Show earlier facts").wait_for()
        assert card.locator(".chain > li").count() == 50
        card.get_by_role("button", name="Show earlier facts").click()
        card.locator(".chain > li").nth(59).wait_for()
        assert "way 0." in card.locator(".chain > li").first.inner_text()
        assert not card.get_by_role("button", name="Show earlier facts").is_visible()
        context.close()


@pytest.mark.slow
def test_a_key_may_be_put_off_and_a_server_that_is_gone_is_told(browser: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    add_key(keys, "app", tenant=None, users=["maya"])
    settings = Settings(db=str(tmp_path / "m.db"), keys=keys)
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(10_000)
    with listening(make_app(tmp_path, keys=keys), settings) as (address, _):
        page.goto(f"{address}/#user=maya")
        page.get_by_label("Key", exact=True).wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("asks for an API key").wait_for()
        page.get_by_role("button", name="API key").click()
        assert page.get_by_label("Key", exact=True).is_visible()
        page.keyboard.press("Escape")
    page.get_by_role("tab", name="Search").click()
    page.get_by_label("Question").fill("Where?")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("does not answer").wait_for()
    context.close()
