"""How each agent runs headless against a server: its settings, its two prompts, the calls it can be told to make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import json
import os
from pathlib import Path
import subprocess

from tests.agents.script import call

LIMIT_S = 300


@dataclass(frozen=True)
class Place:
    """`home` holds the agent's settings and nothing else; `work` the two files it looks at; `url` has no path."""

    binary: str
    url: str
    home: Path
    work: Path

    def run(self, *arguments: str, **environment: str) -> str:
        """What it printed. Nothing of the caller's environment reaches it."""
        path = os.pathsep.join([str(Path(self.binary).parent), os.environ["PATH"]])
        clean = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", **environment}
        done = subprocess.run(
            [self.binary, *arguments],
            cwd=self.work,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        print(f"$ {' '.join(arguments)}\n{done.stdout.strip()}")
        if done.returncode:
            print(f"exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()


def claude(place: Place, first: str, second: str) -> list[str]:
    environment = {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": "tiny",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "tiny",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    tools = ("--allowedTools", "Read", "Glob", "Grep")
    return [place.run("-p", first, *tools, **environment), place.run("-c", "-p", second, *tools, **environment)]


def codex(place: Place, first: str, second: str) -> list[str]:
    settings = place.home / ".codex"
    settings.mkdir()
    (settings / "config.toml").write_text(
        'model = "tiny"\nmodel_provider = "samovar"\nmodel_context_window = 131072\n'
        f'[model_providers.samovar]\nname = "Samovar"\nbase_url = "{place.url}/v1"\nwire_api = "responses"\n'
    )
    command = ("exec", "--skip-git-repo-check", "--sandbox", "read-only")
    return [place.run(*command, first), place.run(*command, "resume", "--last", second)]


def opencode(place: Place, first: str, second: str) -> list[str]:
    settings = place.home / ".config" / "opencode"
    settings.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Samovar",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {"tiny": {"name": "tiny", "limit": {"context": 131072, "output": 8192}}},
    }
    config = {"model": "samovar/tiny", "small_model": "samovar/tiny", "provider": {"samovar": provider}}
    config |= {"permission": {"edit": "deny", "bash": "deny", "webfetch": "deny"}}
    (settings / "opencode.json").write_text(json.dumps(config))
    return [
        place.run("run", first, OPENCODE_DISABLE_MODELS_FETCH="1"),
        place.run("run", "--continue", second, OPENCODE_DISABLE_MODELS_FETCH="1"),
    ]


def qwen(place: Place, first: str, second: str) -> list[str]:
    environment = {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "tiny"}
    return [place.run("-p", first, **environment), place.run("--continue", "-p", second, **environment)]


def mini(place: Place, first: str, second: str) -> list[str]:
    """It has no way to go on with a session, and its one tool is a shell: it does what the script says, no more."""
    environment = {
        "OPENAI_API_BASE": f"{place.url}/v1",
        "OPENAI_API_KEY": "none",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    options = ("-m", "openai/tiny", "-y", "--exit-immediately", "-o", str(place.home / "trajectory.json"))
    return [place.run(*options, "-t", first, **environment)]


@dataclass(frozen=True)
class Client:
    drive: Callable[[Place, str, str], list[str]]
    """What it printed for each prompt."""
    look: Callable[[Path, str], str]
    """The call that reads a file of the work folder."""
    end: str = ""
    """The call that ends its work, where an answer without a call does not."""
    first_turn: int = 0
    """Answers of the assistant that it puts before its first prompt."""
    side_tokens: int = 1000
    """Its calls on the side are shorter, its turns are not."""


def _shell(tool: str, argument: str) -> Callable[[Path, str], str]:
    return lambda work, name: call(tool, **{argument: f"cat {name}"})


def _read(tool: str, argument: str) -> Callable[[Path, str], str]:
    return lambda work, name: call(tool, **{argument: str(work / name)})


CLIENTS = {
    "claude": Client(claude, _read("Read", "file_path")),
    "codex": Client(codex, _shell("exec_command", "cmd")),
    "opencode": Client(opencode, _read("read", "filePath")),
    "qwen": Client(qwen, _read("read_file", "file_path"), first_turn=1, side_tokens=10_000),
    "mini": Client(mini, _shell("bash", "command"), call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")),
}
