"""The live page as a document: what it may load, what it may not do, whether its colours can be read."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
import re

import httpx
import pytest

from samovar import __version__
from samovar.serve import live
from samovar.serve.live import SCRIPTS, build_page
from tests.serve.conftest import MakeServer

FOLDER = Path(live.__file__).parent / "live_page"
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"style": [], "script": []}
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in self.texts:
            self.texts[self._in].append(data)


@pytest.fixture(scope="module")
def elements() -> Elements:
    return Elements(build_page().html.decode())


async def test_who_gets_what(make_server: MakeServer) -> None:
    client = make_server().client
    page = await client.get("/live")
    assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    root = await client.get("/", headers=BROWSER)
    assert root.content == page.content and root.headers["content-security-policy"] and root.headers["vary"] == "accept"
    other = await client.get("/")
    assert other.json() == {"name": "samovar", "version": __version__}
    for path in ("/", "/live"):
        head = await client.head(path, headers=BROWSER)
        assert head.status_code == 200 and int(head.headers["content-length"]) == len(page.content)
    assert (await client.post("/live")).status_code == 405


async def test_the_page_needs_no_key_and_says_nothing_of_the_server(make_server: MakeServer) -> None:
    server = make_server(api_keys=("secret",), model="tea-model-name")
    page = await server.client.get("/live")
    assert page.status_code == 200 and page.content == build_page().html
    assert b"secret" not in page.content and b"tea-model-name" not in page.content


async def test_it_can_be_left_out(make_server: MakeServer) -> None:
    client = make_server(live_page=False).client
    for path in ("/", "/live"):
        response = await client.get(path, headers=BROWSER)
        assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
    assert (await client.get("/v1/cache")).status_code == 200


async def test_only_its_own_style_and_script_run(client: httpx.AsyncClient) -> None:
    response = await client.get("/live")
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    elements = Elements(response.text)
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = elements.texts[tag]
        assert policy[rule] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        assert len(text) > 1000
    for rule in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[rule] == "'none'"
    assert policy["connect-src"] == "'self'" and "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_nothing_is_loaded_and_nothing_is_inline(elements: Elements) -> None:
    for tag, attributes in elements.found:
        assert "style" not in attributes and not [name for name in attributes if name.startswith("on")], tag
        assert "src" not in attributes, tag
        if "href" in attributes and tag == "link":
            assert str(attributes["href"]).startswith("data:")
    for name in ("page.html", "style.css", *SCRIPTS):
        text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}/|url\(|@import", text), name
    assert {path.name for path in FOLDER.iterdir()} == {"page.html", "style.css", *SCRIPTS}


def test_no_markup_is_made_from_strings() -> None:
    for name in SCRIPTS:
        text = (FOLDER / name).read_text()
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|setAttribute\(.(?:on|style)"
            r"|DOMParser|createContextualFragment|srcdoc|localStorage|</script",
            text,
        )
        assert not found, (name, found)


def test_every_element_that_the_script_wants_is_there(elements: Elements) -> None:
    script = elements.texts["script"][0]
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    made = {f"now-{kind}" for kind in ("cached", "computed", "generated")}
    wanted = made | set(re.findall(r'byId\("([^"$]+)"\)', script))
    assert len(wanted) > 20 and wanted <= set(ids)
    for name in ("aria-labelledby", "aria-describedby", "for"):
        for _, attributes in elements.found:
            assert name not in attributes or attributes[name] in ids


def test_each_name_is_declared_once(elements: Elements) -> None:
    """The files are one module."""
    names = re.findall(r"^(?:const|let|class|function) (\w+)", elements.texts["script"][0], re.M)
    assert len(names) > 40 and len(set(names)) == len(names)


# -- colours ------------------------------------------------------------------------------------------------------

TEXT = ("ink", "muted", "good", "bad")
MARKS = (
    "device", "host", "disk", "other", "lost", "cached", "computed", "generated", "rate", "ceiling", "focus",
)  # fmt: skip
NEIGHBOURS = (("device", "host"), ("host", "disk"), ("cached", "computed"), ("computed", "generated"))


def palettes() -> dict[str, dict[str, str]]:
    style = (FOLDER / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks)
    return {"light": light, "dark": dark}


def luminance(colour: str) -> float:
    """WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(theme: str) -> None:
    colours = palettes()[theme]
    assert set(colours) == {"ground", "card", "line", *TEXT, *MARKS}
    for name, ground in product(TEXT, ("ground", "card")):
        assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for name, ground in product(MARKS, ("ground", "card")):
        assert contrast(colours[name], colours[ground]) >= 3, (name, ground)
    for one, other in NEIGHBOURS:
        assert colours[one] != colours[other]
