"""`logloom doctor`: report damage and odd timing in logs."""

from __future__ import annotations

import typer

from logloom.cli.terminal.output import (
    FAILED,
    NOT_WHOLE,
    Json,
    LogsArgument,
    StorageOption,
    app,
    examples,
    parse_storage_options,
    print_json,
    print_result,
    print_table,
)


@app.command(
    epilog=examples(
        "logloom doctor drive.mcap",
        "logloom doctor 'gs://drives/2026-11-20/*.mcap' --json",
        "logloom doctor drive.mcap > /dev/null || echo 'needs care'",
    )
)
def doctor(logs: LogsArgument, json: Json = False, storage_option: StorageOption = None) -> None:
    """Report what in logs is damaged, missing or strangely timed.

    Reads them from end to end, and names the remedy of each finding.
    """
    from logloom.pipelines.doctor.doctor import examine_all
    from logloom.pipelines.doctor.findings import COLUMNS

    found = []
    for diagnosis in examine_all(logs, parse_storage_options(storage_option)):
        found.append(diagnosis)
        if json:
            continue
        if diagnosis.is_readable:
            print_table(diagnosis.headline, COLUMNS, [topic.table_row() for topic in diagnosis.topics])
        for line in diagnosis.lines():
            print_result(line)
    if json:
        print_json({"logs": [diagnosis.to_json() for diagnosis in found]})
    if not all(diagnosis.is_readable for diagnosis in found):
        raise typer.Exit(FAILED)
    if any(diagnosis.is_damaged for diagnosis in found):
        raise typer.Exit(NOT_WHOLE)
