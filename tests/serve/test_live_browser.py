"""The live page in headless Chromium, over the real application and a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from samovar.core.stats import CacheReport, SessionReport, TierReport
from samovar.serve import live, snapshots
from tests.serve.asgi import Server
from tests.serve.browser import CHROMIUM, Browser, browser, served
from tests.serve.cache_samples import LiveDay
from tests.serve.conftest import MakeServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

FOLDER = Path(live.__file__).parent / "live_page"
ROWS = "[...document.querySelectorAll('#sessions .session')]"
HURRY = "const later = window.setTimeout; window.setTimeout = (task, ms) => later(task, ms / 10);"
NEXT_ANSWERS = "new Promise((done) => later(done, 250))"
PLACES = (
    "[...document.querySelectorAll('main section, .tile, canvas, .tier, .session, #misses tr, #moves tr, footer')]"
    ".map((e) => [e.id || e.tagName, Math.round(e.getBoundingClientRect().top + scrollY)])"
)


@pytest.fixture(scope="module")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        found.before_scripts(HURRY)
        yield found


@pytest.fixture
def page(_chromium: Browser) -> Iterator[Browser]:
    """A fresh one; nothing may go wrong in it."""
    _chromium.errors.clear()
    _chromium.show(1280, 800)
    yield _chromium
    _chromium.open("about:blank#")
    assert not _chromium.errors


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> LiveDay:
    monkeypatch.setattr(snapshots, "MAX_AGE_S", 0.0)
    found = LiveDay()
    found.seconds(400)
    return found


def tell(server: Server, day: LiveDay, seconds: int = 0) -> None:
    day.seconds(seconds)
    server.service.snapshot, server.service.report = day.stats(), day.report()


def text(page: Browser, selector: str) -> str:
    found = page.ask(f"document.querySelector({selector!r}).innerText")
    assert isinstance(found, str)
    return found


def test_a_day(page: Browser, make_server: MakeServer, day: LiveDay) -> None:
    server = make_server()
    tell(server, day)
    with served(server.app) as url:
        page.open(f"{url}/")
        page.until(f"{ROWS}.length === {len(day.agents)}")
        stats = day.stats()
        assert text(page, "#hit-rate") == f"{100 * stats.prompt_tokens_cached / stats.prompt_tokens:.1f}%"
        assert f"{100 * stats.ceiling_tokens / stats.prompt_tokens:.1f}%" in text(page, "#hit-note")
        assert text(page, "#status") == "Live" and text(page, "#running") == f"{stats.num_running} running"
        tiers = page.ask("[...document.querySelectorAll('.tier h3')].map((e) => e.innerText)")
        assert tiers == ["device", "host", "disk"]
        assert "1 checksum, 2 late" in text(page, ".tier:nth-child(3)")
        check_families(page, day)
        check_bars(page, day)
        for _ in range(4):
            tell(server, day, 5)
            page.ask(NEXT_ANSWERS)
        assert page.ask("document.querySelector('#now-generated').innerText") != "–"
        assert "%" in text(page, "#now-rate")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves(page: Browser, make_server: MakeServer, day: LiveDay, width: int) -> None:
    """From one answer to the next, while sessions begin and end turns and every figure changes."""
    server = make_server()
    tell(server, day)
    page.show(width, 844)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length === {len(day.agents)}")
        page.ask(NEXT_ANSWERS)
        places = page.ask(PLACES)
        assert len(places) > 50
        said = page.ask("document.querySelector('main').innerText")
        for _ in range(8):
            tell(server, day, 7)
            page.ask(NEXT_ANSWERS)
            assert page.ask(PLACES) == places
            assert page.ask("document.querySelector('main').innerText") != said


def check_families(page: Browser, day: LiveDay) -> None:
    names = page.ask(f"{ROWS}.map((row) => [row.querySelector('bdi').innerText, row.classList.contains('child')])")
    parent = ""
    for name, child in names:
        assert child == ("/sub-" in name)
        if child:
            assert name.startswith(f"{parent}/")
        else:
            parent = name
    running = {agent.session_id for agent in day.agents if agent.running(day.now)}
    shown = page.ask("[...document.querySelectorAll('.session.running bdi')].map((e) => e.innerText)")
    assert set(shown) == running
    whys = page.ask(f"{ROWS}.map((row) => row.querySelector('.why').innerText)")
    assert any("called" in why and "back in about" in why for why in whys) and any("kept for" in why for why in whys)


def check_bars(page: Browser, day: LiveDay) -> None:
    """Widths are to each other as tokens are, to the pixel."""
    widths = page.ask(
        f"Object.fromEntries({ROWS}.map((row) => [row.querySelector('bdi').innerText, Object.fromEntries("
        "[...row.querySelectorAll('.bar i')].map((e) => [e.className, e.getBoundingClientRect().width]))]))"
    )
    whole = page.ask("document.querySelector('.bar').getBoundingClientRect().width")
    most = max(agent.num_tokens for agent in day.agents)
    scale = next(step for step in (100_000, 200_000, 500_000, 1_000_000) if step >= most)
    for row in day.report().sessions:
        device = min(row.tiers["device"], row.num_tokens)
        assert widths[row.session_id]["device"] == pytest.approx(max(0, whole * device / scale - 1), abs=2.1)
        total = sum(widths[row.session_id].values())
        assert total == pytest.approx(whole * row.num_tokens / scale, abs=8)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_it_fits(page: Browser, make_server: MakeServer, day: LiveDay, width: int, theme: str) -> None:
    server = make_server()
    tell(server, day)
    first, *others = server.service.report.sessions
    long = msgspec.structs.replace(first, session_id="x" * 256, stream="long", why="w" * 300)
    server.service.report = msgspec.structs.replace(server.service.report, sessions=(long, first, *others))
    page.show(width, 844, theme)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length > 20")
        assert page.ask("document.documentElement.scrollWidth") <= width
        over = page.ask(
            "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)"
            ".map((e) => e.className || e.tagName)"
        )
        assert not over
        ground = page.ask("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(247, 244, 239)" if theme == "light" else "rgb(22, 19, 16)")


def test_text_from_clients_stays_text(page: Browser, make_server: MakeServer, day: LiveDay) -> None:
    server = make_server()
    hostile = (
        '<img src=x onerror="window.hurt=1">', "<script>window.hurt=1</script>", "javascript:window.hurt=1",
        '"><svg onload=window.hurt=1>', "__proto__", "constructor", "", "'); window.hurt=1; ('", "مرحبا", "a" * 256,
    )  # fmt: skip
    rows = tuple(
        SessionReport(name, "", hostile[at - 1], stream=name or "none", num_tokens=160, tiers={name: 16}, why=name)
        for at, name in enumerate(hostile)
    )
    odd = {"<b>reason</b>": 1, "__proto__": 2}
    server.service.report = CacheReport("<i>policy</i>", 16, (TierReport("<u>tier</u>", 10, 5, failed=odd),), rows, 10)
    server.service.snapshot = msgspec.structs.replace(day.stats(), misses=odd, missed_tokens=odd, hints={"<s>:x": 1})
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length === {len(hostile)}")
        names = page.ask(f"{ROWS}.map((row) => row.querySelector('bdi').textContent)")
        assert sorted(names) == sorted(name or "no session id" for name in hostile)
        assert page.ask("window.hurt") is None
        made = "main img, main svg, main script, main b b, main u, main s"
        assert page.ask(f"document.querySelectorAll('{made}').length") == 0
        assert "<b>reason</b>" in text(page, "#misses") and "<i>policy</i>" in text(page, "#policy")


def test_a_key_is_asked_for(page: Browser, make_server: MakeServer) -> None:
    server = make_server(api_keys=("left", "right"))
    with served(server.app) as url:
        tenant = tenant_of(server, url, "left")
        server.service.report = CacheReport(
            "lru", 16, (), (SessionReport("mine", tenant), SessionReport("theirs", "somebody")), 2
        )
        page.open(f"{url}/live")
        page.until("document.activeElement.id === 'key'")
        assert text(page, "#status") == "Key needed" and not page.ask("document.querySelector('main').offsetHeight")
        for given, said in (("wrong", "does not know this key"), ("böse", "printable ASCII")):
            page.write(given)
            page.press("Enter")
            page.until(f"document.querySelector('#key-error').innerText.includes('{said}')")
            page.ask("document.querySelector('#key').value = ''")
        page.write("left")
        page.press("Enter")
        page.until(f"{ROWS}.length === 1")
        assert text(page, "#sessions bdi") == "mine" and page.ask("sessionStorage.length") == 1
        assert page.ask("location.href") == f"{url}/live" and page.ask("localStorage.length") == 0
        page.ask("document.querySelector('#forget').click()")
        page.until("!document.querySelector('#key-form').hidden")
        assert page.ask("sessionStorage.length") == 0


def tenant_of(server: Server, url: str, key: str) -> str:
    httpx.post(f"{url}/v1/completions", json={"prompt": "a"}, headers={"x-api-key": key}).raise_for_status()
    return server.service.requests[-1].tenant


def test_a_chart_says_what_it_has_not_seen(page: Browser) -> None:
    """Until five minutes are full; and anew when another engine answers."""
    found = run(
        page,
        ("text.js", "history.js"),
        f"{STATE} const seen = [past.seen_s]; past.add(state(1000, 10)); seen.push(past.seen_s);"
        "past.add(state(1012.5, 20)); seen.push(past.seen_s); past.add(state(1400, 30)); seen.push(past.seen_s);"
        "past.add(state(1401, 3)); seen.push(past.seen_s); past.clear(); seen.push(past.seen_s); return seen;",
    )
    assert found == [0, 0, 12.5, 400, 0, 0]
    drawn = (
        "const told = []; const context = { fillRect() {}, fillText(text) { told.push(text); } };"
        "const document = { documentElement: null }; const getComputedStyle = () => ({ getPropertyValue: () => '' });"
        "for (const seen_s of [0, 12, 200, 301]) drawUnseen(context, 600, 190, seen_s); return told;"
    )
    said = run(page, ("text.js", "history.js", "chart.js"), drawn)
    assert said == ["collecting, 0.0 s so far", "collecting, 12 s so far", "collecting, 3 min 20 s so far"]


def test_a_tier_that_does_not_answer_is_shown(page: Browser, make_server: MakeServer) -> None:
    server = make_server()
    tiers = (TierReport("host", 10, suspensions=2), TierReport("disk", 10, suspended=True, suspensions=1))
    server.service.report = CacheReport("lru", 16, tiers, (), 0)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until("document.querySelectorAll('.tier').length === 2")
        assert "2 times, answers again" in text(page, ".tier:nth-child(1)")
        assert text(page, ".tier:nth-child(2) td.bad") == "now, so it is left alone"


def test_a_row_says_nothing_twice(page: Browser, make_server: MakeServer) -> None:
    server = make_server()
    rows = (
        SessionReport("runs", "", running=True),
        SessionReport("waits", "", stream="w", return_in_s=40.0, why="called read"),
        SessionReport("old", "", stream="f", num_tokens=160, tiers={"disk": 160}, why="found at the start"),
    )
    server.service.report = CacheReport("agent", 16, (TierReport("disk", 100, 10),), rows, 3)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length === 3")
        said = page.ask(f"Object.fromEntries({ROWS}.map((row) => [row.querySelector('bdi').innerText, row.innerText]))")
        assert said["runs"].count("running") == 1 and "in use" not in said["runs"]
        assert said["waits"].count("back") == 1 and "called read" in said["waits"]
        assert "found at the start" in said["old"]


def test_an_engine_that_goes_away(page: Browser, make_server: MakeServer, day: LiveDay) -> None:
    server = make_server()
    tell(server, day)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length > 20")
        server.service.dead = "it ran out of tea"
        page.until("document.querySelector('#status').innerText.includes('out of tea. Figures are old')")
        assert page.ask(f"{ROWS}.length") > 20
        server.service.dead = None
        page.until("document.querySelector('#status').innerText === 'Live'")


def test_everything_works_by_keyboard(page: Browser, make_server: MakeServer, day: LiveDay) -> None:
    server = make_server()
    tell(server, day)
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length > 20")
        stops = []
        for _ in range(7):
            page.press("Tab")
            stops.append(page.ask("document.activeElement.id || document.activeElement.className"))
            if stops[-1] == "tokens-chart":
                page.press("ArrowLeft")
                assert "ago: cached" in text(page, "#tokens-said")
                page.press("Escape")
                assert "ago" not in text(page, "#tokens-said")
            if stops[-1] == "pause":
                page.press(" ")
                assert text(page, "#status") == "Paused"
                page.press(" ")
                page.until("document.querySelector('#status').innerText === 'Live'")
        assert stops[:5] == ["skip", "pause", "tokens-chart", "hits-chart", "sort"]


def test_orders(page: Browser, make_server: MakeServer, day: LiveDay) -> None:
    """Rows stay where they are from one answer to the next; a new conversation comes first."""
    server = make_server()
    tell(server, day)
    names = f"{ROWS}.map((row) => row.querySelector('bdi').innerText)"
    with served(server.app) as url:
        page.open(f"{url}/live")
        page.until(f"{ROWS}.length > 20")
        before = page.ask(names)
        tell(server, day, 60)
        page.ask(NEXT_ANSWERS)
        assert page.ask(names) == before
        new = SessionReport("brand-new", "", stream="new", num_tokens=160)
        report: Any = server.service.report
        server.service.report = msgspec.structs.replace(report, sessions=(new, *report.sessions))
        page.until(f"{names}[0] === 'brand-new'")
        assert page.ask(names)[1:] == before
        page.ask(
            "const sort = document.querySelector('#sort'); sort.value = 'size'; sort.dispatchEvent(new Event('change'))"
        )
        mains = [name for name in page.ask(names) if "/sub-" not in name]
        size = {row.session_id: row.num_tokens for row in report.sessions}
        families = [sum(v for k, v in size.items() if k == name or k.startswith(f"{name}/")) for name in mains[:-1]]
        assert families == sorted(families, reverse=True) and mains[-1] == "brand-new"


# -- the script's arithmetic --------------------------------------------------------------------------------------


def run(page: Browser, names: tuple[str, ...], source: str) -> Any:
    """`source` as the body of a function that sees what some files of the script declare."""
    text = "\n".join((FOLDER / name).read_text() for name in names)
    return page.ask(f"(() => {{ {text}\n{source} }})()")


def test_how_numbers_read(page: Browser) -> None:
    cases = {
        "short": [(0, "0"), (7, "7"), (0.123, "0.12"), (99.7, "100"), (999, "999"), (999.7, "1K"), (1234, "1.23K"),
                  (99_960, "100K"), (999_499, "999K"), (999_999, "1M"), (2_500_000, "2.5M"), (7e9, "7G")],
        "bytes": [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (1 << 20, "1 MiB"), (5.5 * 2**30, "5.5 GiB")],
        "seconds": [(0, "0.0 s"), (1.25, "1.3 s"), (9.96, "10 s"), (99.4, "99 s"), (99.6, "1 min 40 s"), (120, "2 min"),
                    (3599.7, "1 h"), (3661, "1 h 1 min"), (7199, "2 h"), (90_000, "1 d 1 h"), (-5, "-5.0 s")],
        "percent": [(0.5, "50.0%"), (1, "100.0%")],
        "roundUp": [(0, 1), (1, 1), (1.2, 1.5), (302, 400), (99, 100), (1000, 1000), (0.03, 0.03)],
    }  # fmt: skip
    for function, pairs in cases.items():
        found = run(page, ("text.js",), f"return {[value for value, _ in pairs]}.map((value) => {function}(value));")
        assert found == [text for _, text in pairs], function


STATE = (
    "const state = (t, n) => ({ time_s: t, hits: { ceiling_tokens: n },"
    " tokens: { cached: n, computed: n, recomputed: n, generated: n, prompt: 2 * n } });"
    " const past = new History(); const sum = (list) => list.reduce((a, b) => a + b, 0);"
)


@pytest.mark.parametrize("every_s", [0.5, 1, 1.7, 5, 13, 61])
def test_a_steady_rate_is_shown_as_one(page: Browser, every_s: float) -> None:
    """However often the page asks: 30 tokens a second are 30 in every bucket and now."""
    found = run(
        page,
        ("text.js", "history.js"),
        f"{STATE} for (let t = 0; t <= 400; t += {every_s}) past.add(state(1000 + t, 30 * t));"
        "return [past.rates('generated'), past.rates('computed'), past.shares('cached'), past.now('generated')];",
    )
    assert found[0] == pytest.approx([30] * 60) and found[1] == pytest.approx([60] * 60)
    assert found[2] == pytest.approx([0.5] * 60)
    assert found[3] == pytest.approx(30) if every_s < 30 else found[3] is None


def test_nothing_is_lost_between_buckets_and_a_new_engine_begins_anew(page: Browser) -> None:
    found = run(
        page,
        ("text.js", "history.js"),
        f"{STATE} let t = 500.3; let n = 0; past.add(state(t, n));"
        "for (let i = 0; i < 90; i += 1) { t += 0.2 + (i % 7); n += (i * 37) % 900; past.add(state(t, n));"
        "past.add(state(t, n)); }"
        "const seen = [...past.buckets.values()]; const all = sum(seen.map((one) => one.generated));"
        "const covered = sum(seen.map((one) => one.covered_s)); const kept = past.samples.length;"
        "past.add(state(t + 1, 5)); const cleared = past.buckets.size;"
        "past.add(state(t + 2, 15)); return [all, n, covered, t - 500.3, kept, cleared, past.now('generated')];",
    )
    everything, counted, covered, span, kept, cleared, now = found
    assert everything == pytest.approx(counted) and covered == pytest.approx(span)
    assert kept < 90 and cleared == 0 and now == pytest.approx(10)
