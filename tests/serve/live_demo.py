"""The live page over a made-up day, without an engine:

    python -m tests.serve.live_demo                          serves it on http://127.0.0.1:8123
    python -m tests.serve.live_demo --pictures FOLDER        takes pictures of it

Pictures are of two widths, light and dark, in headless Chromium.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
import tempfile
import time

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
import uvicorn

from samovar.serve.cache_figures import Snapshot
from samovar.serve.cache_report import cache_state, sessions_wanted
from samovar.serve.json_output import JsonResponse
from samovar.serve.live import live_routes
from tests.serve.browser import browser, served
from tests.serve.cache_samples import LiveDay

SIZES = ((1280, 800), (390, 844))
HURRY = "const later = window.setTimeout; window.setTimeout = (task, ms) => later(task, ms / 40);"
"""The page asks 40 times as often."""


def demo_app(day: LiveDay, passed: Callable[[], int]) -> FastAPI:
    """`passed`: by how many seconds the day has moved on since the last request."""
    app = FastAPI()
    app.include_router(live_routes())

    @app.get("/v1/cache")
    async def cache(request: Request) -> Response:
        day.seconds(passed())
        wanted = sessions_wanted(request.query_params.get("sessions"))
        return JsonResponse(
            cache_state(Snapshot(day.stats(), day.report(), day.now), "Qwen3-Coder-30B-A3B", None, wanted)
        )

    return app


def take_pictures(folder: Path) -> None:
    day = LiveDay()
    day.seconds(1800)
    passing = 1
    with (
        served(demo_app(day, lambda: passing)) as url,
        tempfile.TemporaryDirectory() as profile,
        browser(Path(profile)) as page,
    ):
        page.before_scripts(HURRY)
        page.show(*SIZES[0])
        page.open(f"{url}/live")
        began = day.now
        while day.now < began + 330:
            page.until("true")
            time.sleep(0.1)
        passing = 0
        for width, height in SIZES:
            for theme in ("light", "dark"):
                page.show(width, height, theme)
                time.sleep(0.3)
                page.picture(folder / f"live_{width}_{theme}.png")
        print(page.errors or "no errors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    if arguments.pictures is not None:
        take_pictures(arguments.pictures)
        return
    day = LiveDay()
    began, started = day.now, time.monotonic()
    app = demo_app(day, lambda: int(began + time.monotonic() - started - day.now))
    uvicorn.run(app, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
