"""Fixtures of the tests that run models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """For models of a few kilobytes a second thread brings nothing, and it waits where cores are shared."""
    import torch  # the folder also has tests without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
