"""The ASGI application: endpoints, middleware, error handlers. Is given engine, tokenizer and template."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
import time
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from samovar import __version__
from samovar.base.errors import Draining, SamovarError
from samovar.core.ports import Service
from samovar.serve.anthropic.routes import routes as anthropic_routes
from samovar.serve.auth import Authenticator
from samovar.serve.bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from samovar.serve.body_memory import BodyMemory
from samovar.serve.cache_figures import Snapshot
from samovar.serve.cache_match import match_answer, prompt_of
from samovar.serve.cache_report import cache_routes
from samovar.serve.callers import caller_of
from samovar.serve.chat_format import ChatFormat
from samovar.serve.completion_format import CompletionFormat
from samovar.serve.config import ServeConfig
from samovar.serve.documents import answers, install_document, takes, takes_any
from samovar.serve.drain import Drain
from samovar.serve.errors import error_response, install_handlers
from samovar.serve.handler import generate
from samovar.serve.hint_routes import routes as hint_routes
from samovar.serve.json_output import JsonResponse
from samovar.serve.live import live_routes
from samovar.serve.metrics import CONTENT_TYPE, Metrics
from samovar.serve.names import ModelNames
from samovar.serve.output_formats import choose_reasoning, choose_tool_format
from samovar.serve.outputs import Outputs
from samovar.serve.preparing import chat_job, completion_job
from samovar.serve.prompts import PromptReader
from samovar.serve.request_ids import RequestIdHeader, RequestIds
from samovar.serve.responses.routes import routes as responses_routes
from samovar.serve.sampling import Limits
from samovar.serve.snapshots import Snapshots
from samovar.serve.state import ServerState, engine_dead
from samovar.serve.tokenizing import detokenize, tokenize
from samovar.serve.uploads import Uploads
from samovar.serve.workers import Workers
from samovar.text.grammar.compiler import GrammarCompiler
from samovar.text.grammar.vocabulary import build_vocabulary
from samovar.text.template import ChatTemplate
from samovar.text.tokenizer import Tokenizer
from samovar.text.turns.volatile import VolatileLines

TOKENIZE_ERRORS = (400, 401, 404, 408, 413, 415, 429)
MATCH_ERRORS = (*TOKENIZE_ERRORS, 503)
GENERATION_ERRORS = (400, 401, 404, 408, 413, 415, 429, 500, 503)
STREAMABLE = ("application/json", "text/event-stream")


def make_app(
    service: Service,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    config: ServeConfig,
    drain: Drain | None = None,
) -> FastAPI:
    """`drain` is for whoever has to end the server; it is used on the event loop that runs the application."""
    info = service.info
    state = ServerState(
        service=service,
        tokenizer=tokenizer,
        reader=PromptReader(
            tokenizer, template, info.vocab_size, info.max_model_len, VolatileLines(config.volatile_lines)
        ),
        parsed=BodyMemory(),
        outputs=Outputs(
            tokenizer,
            choose_tool_format(config.tool_call_parser, template),
            choose_reasoning(config.reasoning_parser, template),
            GrammarCompiler(lambda: build_vocabulary(tokenizer, info.vocab_size)),
        ),
        limits=Limits(info.max_model_len, info.vocab_size, tuple(tokenizer.eos_ids)),
        config=config,
        names=ModelNames(config),
        auth=Authenticator(config.api_keys),
        metrics=Metrics(config.public_model, info),
        drain=drain or Drain(),
        uploads=Uploads(config.max_body_bytes, config.max_upload_bytes, config.body_timeout_s),
        workers=Workers(config.tokenize_threads),
        ids=RequestIds(),
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        state.workers.close()

    app = FastAPI(title="Samovar", version=__version__, redoc_url=None, lifespan=lifespan)
    app.include_router(_generation_routes(state))
    app.include_router(responses_routes(state, config.stored_responses))
    app.include_router(anthropic_routes(state))
    app.include_router(hint_routes(state))
    app.include_router(_model_routes(state))
    snapshots = Snapshots(service)
    app.include_router(_operation_routes(state, snapshots))
    app.include_router(cache_routes(state, snapshots))
    if config.live_page:
        app.include_router(live_routes())
    install_handlers(app, state.metrics)
    install_document(app)
    app.add_middleware(RequestIdHeader)
    return app


def _generation_routes(state: ServerState) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        responses=answers(*GENERATION_ERRORS, kinds=STREAMABLE),
        openapi_extra=takes(ChatBody),
        response_class=Response,
    )
    async def chat_completions(request: Request) -> Response:
        return await generate(state, request, chat_job, ChatFormat)

    @router.post(
        "/v1/completions",
        responses=answers(*GENERATION_ERRORS, kinds=STREAMABLE),
        openapi_extra=takes(CompletionBody),
        response_class=Response,
    )
    async def completions(request: Request) -> Response:
        return await generate(state, request, completion_job, CompletionFormat)

    @router.post(
        "/v1/cache/match",
        responses=answers(*MATCH_ERRORS),
        openapi_extra=takes_any(ChatBody, CompletionBody),
        response_class=Response,
    )
    async def cache_match(request: Request) -> Response:
        caller = caller_of(state, request)
        with state.uploads.begin(request) as upload:
            raw = await upload.read()
            prompt = await state.workers.thread(partial(prompt_of, state, caller, raw))
        return JsonResponse(await match_answer(state.service, prompt.keys, prompt.num_tokens))

    return router


def _model_routes(state: ServerState) -> APIRouter:
    router = APIRouter()
    created_s = int(time.time())
    created_at = datetime.fromtimestamp(created_s, UTC).isoformat().replace("+00:00", "Z")

    def card(name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": created_s,
            # What the Messages API calls the same.
            "type": "model",
            "display_name": name,
            "created_at": created_at,
            "owned_by": "samovar",
            "root": state.config.model,
            "parent": None,
            "max_model_len": state.limits.max_model_len,
        }

    @router.get("/v1/models/", include_in_schema=False)
    @router.get("/v1/models", responses=answers(401), response_class=Response)
    async def models(request: Request) -> Response:
        state.auth.tenant(request.headers)
        names = state.names.listed()
        pages = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
        return JsonResponse({"object": "list", "data": [card(name) for name in names], **pages})

    @router.get("/v1/models/{model:path}", responses=answers(401, 404), response_class=Response)
    async def model(request: Request, model: str) -> Response:
        state.auth.tenant(request.headers)
        return JsonResponse(card(state.names.resolve(model)))

    @router.post(
        "/tokenize",
        responses=answers(*TOKENIZE_ERRORS),
        openapi_extra=takes(TokenizeBody),
        response_class=Response,
    )
    async def tokenize_text(request: Request) -> Response:
        return await _answer(state, request, tokenize)

    @router.post(
        "/detokenize",
        responses=answers(*TOKENIZE_ERRORS),
        openapi_extra=takes(DetokenizeBody),
        response_class=Response,
    )
    async def detokenize_ids(request: Request) -> Response:
        return await _answer(state, request, detokenize)

    return router


async def _answer(
    state: ServerState, request: Request, compute: Callable[[ServerState, str, bytes], dict[str, Any]]
) -> Response:
    tenant = state.auth.tenant(request.headers)
    with state.uploads.begin(request) as upload:
        raw = await upload.read()
        return JsonResponse(await state.workers.run(len(raw), partial(compute, state, tenant, raw)))


def _operation_routes(state: ServerState, snapshots: Snapshots) -> APIRouter:
    """For operators and their tools: open to everyone, and without any client's text."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health", responses=answers(503), response_class=Response)
    async def health() -> Response:
        if state.service.dead is not None:
            return error_response(engine_dead(state.service))
        if state.drain.draining:
            return error_response(Draining("The server is shutting down."))
        return JsonResponse({"status": "ok"})

    @router.get("/version", responses=answers(), response_class=Response)
    async def version() -> Response:
        return JsonResponse({"version": __version__})

    @router.get("/metrics", responses=answers(kinds=("text/plain",)), response_class=Response)
    async def metrics() -> Response:
        return Response(state.metrics.exposition(await _snapshot(snapshots)), media_type=CONTENT_TYPE)

    return router


async def _snapshot(snapshots: Snapshots) -> Snapshot | None:
    """None when the engine is gone, or too busy to answer in time."""
    try:
        return await snapshots.fresh()
    except SamovarError:
        return None
