"""The live page at `/` and `/live`: one document that needs nothing else and asks `/v1/cache` every second.

The document is the same for everybody and says nothing of anybody, so it is served without a key; what it shows is not.
Its style and its script are allowed by their hashes and nothing else is, so text from clients cannot become code even
if the script had a fault.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from samovar import __version__
from samovar.serve.json_output import JsonResponse

SCRIPTS = ("text.js", "history.js", "chart.js", "charts.js", "sessions.js", "figures.js", "feed.js", "main.js")
"""In `live_page`; one module in this order."""
STYLE_MARK = "/* style.css */"
SCRIPT_MARK = "/* scripts */"


@dataclass(frozen=True, slots=True)
class LivePage:
    html: bytes
    policy: str
    """Its Content-Security-Policy."""


def build_page() -> LivePage:
    folder = resources.files("samovar.serve").joinpath("live_page")
    style = folder.joinpath("style.css").read_text("utf-8")
    script = "\n".join(folder.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    frame = folder.joinpath("page.html").read_text("utf-8")
    policy = (
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    html = frame.replace(STYLE_MARK, style).replace(SCRIPT_MARK, script)
    return LivePage(html.encode(), "; ".join(policy))


def live_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    page = build_page()
    headers = {
        "content-security-policy": page.policy,
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }

    @router.api_route("/live", methods=["GET", "HEAD"])
    async def live() -> Response:
        return Response(page.html, media_type="text/html", headers=headers)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def root(request: Request) -> Response:
        """For browsers; programs that try the address get to know whose it is."""
        if "text/html" in request.headers.get("accept", ""):
            return Response(page.html, media_type="text/html", headers={**headers, "vary": "accept"})
        return JsonResponse({"name": "samovar", "version": __version__}, headers={"vary": "accept"})

    return router


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
