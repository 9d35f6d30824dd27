"""`logloom doctor`: report damage and odd timing in logs."""

from __future__ import annotations

import typer

from logloom.cli import terminal


@terminal.command(
    "logloom doctor drive.mcap",
    "logloom doctor 'gs://drives/2026-11-20/*.mcap' --json",
    "logloom doctor drive.mcap > /dev/null || echo 'needs care'",
)
def doctor(
    logs: terminal.LogsArgument, json: terminal.Json = False, storage_option: terminal.StorageOption = None
) -> None:
    """Report what in logs is damaged, missing or strangely timed.

    Reads them from end to end, and names the remedy of each finding. Also lists parts of other packages that
    can't be used. Exits with code 3 if a log is damaged, with 1 if one can't be read.
    """
    from logloom.cli import GROUPS
    from logloom.pipelines.doctor.doctor import broken_parts, examine_all
    from logloom.pipelines.doctor.findings import COLUMNS

    found = []
    for diagnosis in examine_all(
        logs, terminal.parse_storage_options(storage_option), terminal.print_message
    ):
        found.append(diagnosis)
        if json:
            continue
        if diagnosis.is_readable:
            terminal.print_table(
                diagnosis.headline, COLUMNS, [topic.table_row() for topic in diagnosis.topics]
            )
        for line in diagnosis.lines():
            terminal.print_result(line)
    broken = broken_parts([name for lines in GROUPS.values() for name in lines])
    for one in () if json else broken:
        terminal.print_result(f"broken part of another package: {one}")
    if json:
        examined = [diagnosis.to_json() for diagnosis in found]
        terminal.print_json({"logs": examined, "broken_parts": [one._asdict() for one in broken]})
    if not all(diagnosis.is_readable for diagnosis in found):
        raise typer.Exit(terminal.FAILED)
    if any(diagnosis.is_damaged for diagnosis in found):
        raise typer.Exit(terminal.NOT_WHOLE)
