"""`samovar tokenizer`: the served model's tokenizer for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console
import typer

from samovar.cli.surroundings import cache_dir
from samovar.models.locate import DEFAULT_MODEL, locate
from samovar.spec.fields import Fields
from samovar.spec.gguf_file import read_gguf_header
from samovar.text.checkpoint import hf_templates
from samovar.text.export import export_hf
from samovar.text.gguf_tokenizer import gguf_templates, load_gguf
from samovar.text.hf_tokenizer import load_hf

app = typer.Typer(help="The tokenizer of a model.", no_args_is_help=True)


@app.callback()
def root() -> None:
    pass


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="New folder to write it into.")],
    model: Annotated[
        str, typer.Option(help="A Hugging Face folder, a .gguf file or a hub id.", show_default=DEFAULT_MODEL)
    ] = DEFAULT_MODEL,
    download_dir: Annotated[
        Path | None, typer.Option(help="Where downloads are kept.", show_default="user cache")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Also into a folder that is not empty.")] = False,
) -> None:
    """Write the tokenizer and chat template of a model as a Hugging Face folder, also from a GGUF file."""
    checkpoint = locate(model, download_dir or cache_dir())
    if checkpoint.path.is_dir():
        tokenizer, templates = load_hf(checkpoint.path), hf_templates(checkpoint.path)
    else:
        metadata = Fields(read_gguf_header(checkpoint.path).metadata, str(checkpoint.path))
        tokenizer, templates = load_gguf(metadata), gguf_templates(metadata)
    files = export_hf(tokenizer, templates, folder, checkpoint.spec.max_position_embeddings, overwrite=overwrite)
    Console().print(f"wrote {', '.join(file.name for file in files)} to {folder}", highlight=False, markup=False)
