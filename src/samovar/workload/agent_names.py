"""Under which names the agents of a replay go: over HTTP and in the simulator the same."""

from __future__ import annotations

from samovar.workload.replay import Launch


def session_names(run: str, launch: Launch) -> tuple[str, str]:
    """The session of the call's agent and that of the agent that began it, "" for none. `run` is another for every run
    and concurrency; a tree that begins again has new names."""
    streams, number = launch.script.tree.streams, launch.call.stream
    visit = f"{run}-l{launch.lane}-v{launch.visit}"
    parent = streams[number].parent
    if parent is None:
        return f"{visit}-s{number}", ""
    return f"{visit}-s{number}", f"{visit}-s{next(at for at, other in enumerate(streams) if other.id == parent)}"
