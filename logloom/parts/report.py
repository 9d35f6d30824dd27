"""The part `report`: registers the command `report` and the page that it writes."""

from logloom.parts import Part, Verb

PART = Part(
    pages={"report.html": "logloom.pipelines.report.page:page_at"},
    verbs={
        "report": Verb(
            "logloom.cli.report",
            "Look",
            "Write a page that shows a dataset: samples, columns, changes.",
        )
    },
)
