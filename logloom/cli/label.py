"""`logloom label`: export frames to labelling tools, and import their labels."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import NamingParts
from logloom.text import counted

label = typer.Typer(
    name="label",
    help="Send frames to labelling tools, and import their labels.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
terminal.app.add_typer(label)


@terminal.command(
    "logloom label export /data/urban --column camera.front --to /data/to-label",
    "logloom label export /data/urban@7 --column camera.front --to frames --log drive-01 --every 10",
    app=label,
)
def export(
    root: terminal.Root,
    *,
    column: Annotated[str, typer.Option("--column", "-c", help="Column of images to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="New folder for images and keys.")],
    log: Annotated[
        list[str] | None, typer.Option(metavar="LOG_ID", help="Only frames of this log. May be repeated.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Take the first of so many rows of a log.")] = 1,
    output: Annotated[
        str | None, typer.Option(help="Output to read (default: as `logloom.datasets.open` chooses).")
    ] = None,
    quiet: terminal.Quiet = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Write images of a column as files whose names carry log and time, and a table of these keys."""
    import dataclasses

    from logloom.io.catalog.manifest import split_root
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.label.export_frames import export_frames

    where, version = split_root(root)
    with steps("writing frames", quiet=quiet) as on_progress:
        done = export_frames(
            where,
            version,
            column,
            to,
            output=output,
            logs=log or (),
            every=every,
            storage_options=terminal.parse_storage_options(storage_option),
            on_progress=on_progress,
        )
    if json:
        terminal.print_json(dataclasses.asdict(done))
    lost = f"; {counted(done.without, 'row')} without an image" if done.without else ""
    terminal.print_message(
        f"{counted(done.frames, 'frame')} in {done.folder}/images, keys in keys.parquet{lost}"
    )


@terminal.command(
    "logloom label import export.xml --tool cvat --to labels/round1.parquet",
    "logloom label import *.txt --tool kitti --to labels/b.parquet --keys frames/keys.parquet",
    cls=NamingParts,
    app=label,
    name="import",
)
def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files that the tool wrote.")],
    *,
    tool: Annotated[str, typer.Option(help="Which tool: {importers}.")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="Parquet file to write.")],
    keys: Annotated[
        str, typer.Option(metavar="FILE", help="The export's keys.parquet, for tools that rename images.")
    ] = "",
    label_set: Annotated[
        str, typer.Option(metavar="NAME", help="Label set of Segments.ai (default: ground-truth).")
    ] = "",
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Make a table of labels of what CVAT, Segments.ai, or any tool in COCO's or KITTI's format wrote.

    Exits with code 3 if labels were left out: those of a kind that tables can't store, and those of images
    whose log and time are unknown.
    """
    import dataclasses

    from logloom.pipelines.label.import_labels import import_labels

    done = import_labels(
        files,
        tool,
        to,
        keys=keys,
        label_set=label_set,
        storage_options=terminal.parse_storage_options(storage_option),
    )
    if json:
        terminal.print_json(dataclasses.asdict(done))
    images = f"{done.labelled:,} of {counted(done.images, 'image')}"
    terminal.print_message(f"{counted(done.labels, 'label')} of {images} in {done.file}")
    if done.num_unknown:
        names = ", ".join(done.unknown) + (", …" if done.num_unknown > len(done.unknown) else "")
        terminal.print_message(
            f"left out: labels of {counted(done.num_unknown, 'image')} without a known key ({names})"
        )
    for kind, count in done.skipped.items():
        terminal.print_message(f"left out: {counted(count, 'label')} of kind {kind}")
    if done.num_unknown or done.skipped:
        raise typer.Exit(terminal.NOT_WHOLE)
